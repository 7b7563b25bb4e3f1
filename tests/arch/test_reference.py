"""The generated pages say what the code says, and no way of the documentation leads nowhere."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import catalogue  # noqa: E402

MADE_BY_A_SERVER = ("blobs/", "keys/")


def test_generated_pages_are_fresh():
    for path, text in catalogue.pages().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is stale: run tests/support/catalogue.py"


def test_links_of_the_documentation_lead_somewhere():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} points to {target}"


def test_files_that_the_documentation_names_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py|(?:[a-z_]+/)+)`", page.read_text()):
            found = any((base / name).exists() for base in (ROOT, ROOT / "hypercluster"))
            assert found or name in MADE_BY_A_SERVER, f"{page.relative_to(ROOT)} names {name}"
