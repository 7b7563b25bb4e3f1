"""The repository keeps its own rules."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import pins  # noqa: E402

PACKAGES = ("events", "projections", "replay", "hypercluster")
FLOAT_FREE = ("events/types", "projections", "hypercluster/domain")


def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_what_docker_installs_is_what_uv_resolves():
    locked, pinned = pins.locked(), pins.constraints()
    assert locked, "requirements.lock is empty"
    assert {name: pinned.get(name) for name in locked} == locked


def test_no_file_names_a_registry_or_a_machine():
    registries = re.compile(
        "|".join(("py" + "pi[.]org", "python" + "hosted[.]", "npm" + "js[.]", "deb[.]deb" + "ian[.]"))
    )
    machine = re.compile(r"(?<![\w.])/(?:w" + r"ork|f" + r"arm)/\w|/ro" + r"ot/[.]|/home/\w+/")
    for path in tracked():
        text = path.read_text(errors="ignore")
        assert not registries.search(text), path
        assert not machine.search(text), path


def test_the_four_packages_are_ours():
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).is_relative_to(ROOT), f"{name} comes from {spec.origin}"


def test_the_core_has_no_floats():
    pattern = re.compile(r"\bfloat\b|(?<![\w.])\d+\.\d+(?![\w.])")
    for folder in FLOAT_FREE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            code = re.sub(r'""".*?"""|#.*|"[^"\n]*"', "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
            assert not pattern.search(code), f"{path.relative_to(ROOT)}: {pattern.search(code)}"


def test_every_module_belongs_to_a_layer():
    homes = {"domain", "effects", "runtime", "http", "cli", "sim"}
    found = {path.name for path in (ROOT / "hypercluster").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found == homes
