"""Writes the exact versions of the current resolution into pyproject.toml and requirements.lock.

Run `uv lock --upgrade` first to move to newer versions, then `uv run python tests/support/pins.py`.
"""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
LOCK = ROOT / "requirements.lock"


def resolved() -> dict[str, str]:
    """Name -> version of every package of every group."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    return {one["name"]: one["version"] for one in packages if "registry" in one["source"]}


def constraints() -> dict[str, str]:
    """Name -> version as pyproject.toml pins it."""
    pins = tomllib.loads(PROJECT.read_text())["tool"]["uv"]["constraint-dependencies"]
    return dict(pin.split("==") for pin in pins)


def locked() -> dict[str, str]:
    """Name -> version in requirements.lock."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", LOCK.read_text(), re.MULTILINE))


def main() -> None:
    """Rewrite both files."""
    pins = "".join(f'    "{name}=={version}",\n' for name, version in sorted(resolved().items()))
    text = PROJECT.read_text()
    block = f"constraint-dependencies = [\n{pins}]\n"
    if "constraint-dependencies = [" in text:
        text = re.sub(r"constraint-dependencies = \[\n.*?\]\n", lambda _: block, text, count=1, flags=re.DOTALL)
    else:
        text = text.replace("[tool.uv]\n", f"[tool.uv]\n{block}", 1)
    PROJECT.write_text(text)
    export = ["uv", "export", "--quiet", "--no-dev", "--no-emit-project", "--no-header", "--no-annotate"]
    LOCK.write_text(subprocess.run(export, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
