"""docs/how-to/add-an-event.md is true: its steps are applied to a copy of the code, and the copy is run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-an-event.md"
PACKAGES = ("events", "projections", "replay", "hypercluster")

STEP = re.compile(r"<!-- (append|replace): (\S+) -->\n((?:```python\n.*?\n```\n)+)", re.DOTALL)
BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)

# The copy must win over the installed packages.
RUN = "import sys, runpy; sys.path[:0] = sys.argv[3:1:-1]; runpy.run_path(sys.argv[3] + '/check.py', {}, '__main__')"

CHECK = """
import sys
from pathlib import Path

import ledgers
from events import registry
from hypercluster.cli.describe import describe
from replay.verify import verify

town = ledgers.Town(Path(sys.argv[1]))
ada, eve = ledgers.person("ada"), ledgers.person("eve")
town.made(ada, "POST", "/v1/providers/register", {})
moved = town.ask(ada, "POST", "/v1/providers/move", {"location_hint": "Oslo"})
again = town.ask(ada, "POST", "/v1/providers/move", {"location_hint": "Oslo"})
stranger = town.ask(eve, "POST", "/v1/providers/move", {"location_hint": "Oslo"})
provider = town.state.market.providers[moved.decision.subject]
assert moved.decision.events[0].type_name == "provider.moved"
assert again.decision.events == () and again.decision.seq == moved.first
assert stranger.decision.code == "provider_not_found"
assert provider.location_hint == "Oslo"
town.close()
report = verify(town.path)
assert report.ok and report.size == moved.first + 1, report.as_dict()
entry = ledgers.decoded(town.path, moved.first)
assert entry["data"] == {"provider_id": provider.provider_id, "location_hint": "Oslo"}
assert "provider.moved" in registry.known_types()
print("as the page says")
"""


def apply(copy: Path, verb: str, name: str, blocks: list[str]) -> None:
    path = copy / name
    text = path.read_text()
    if verb == "append":
        (block,) = blocks
        path.write_text(text + block)
        return
    old, new = blocks
    assert text.count(old) == 1, f"{name} holds this {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new))


def test_the_steps_of_the_page_work(tmp_path):
    copy = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    steps = STEP.findall(PAGE.read_text())
    assert len(steps) >= 9
    for verb, name, blocks in steps:
        apply(copy, verb, name, BLOCK.findall(blocks))
    (copy / "check.py").write_text(CHECK)
    argv = [sys.executable, "-c", RUN, str(tmp_path / "data"), str(ROOT / "tests" / "support"), str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=copy)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "as the page says"
