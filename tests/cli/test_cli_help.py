"""Every command explains itself, and every command that a page or an example names exists with its options."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hypercluster.cli import frame
from hypercluster.cli.main import run
from hypercluster.cli.nouns import NOUNS
from hypercluster.domain.codes import Exit

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^ *```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"(?:^|[\s(])hypercluster (?=[a-z])([^|#;)&>\n]*)")


def leaves(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    """Every command that does something, with its words."""
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
    for name, child in (children or {}).items():
        yield from leaves(child, [*path, name])


LEAVES = {" ".join(path): command for noun in NOUNS for path, command in leaves(frame.load(noun), [noun])}


def calls(text: str) -> list[list[str]]:
    """The words after `hypercluster` of every call in a piece of shell."""
    whole = text.replace("\\\n", " ")
    return [shlex.split(found) for found in CALL.findall(whole)]


def check(words: list[str]) -> None:
    """The words name a command, and its options."""
    name = next((" ".join(words[:n]) for n in range(len(words), 0, -1) if " ".join(words[:n]) in LEAVES), None)
    assert name is not None, words
    known = {option for one in LEAVES[name].params for option in one.opts}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= known, (words, given - known)


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_help_ends_well_and_shows_the_example(capfd, name):
    assert run([*name.split(), "--help"]) == Exit.DONE
    out, err = capfd.readouterr()
    assert err == ""
    assert "Usage: hypercluster" in out
    assert "Example: hypercluster" in out
    assert "--install-completion" not in out
    check(shlex.split(LEAVES[name].epilog.removeprefix("Example: hypercluster ")))


def test_the_first_help_names_every_noun(capfd):
    assert run(["--help"]) == Exit.DONE
    out = capfd.readouterr().out
    assert all(re.search(rf"^\W+{noun} ", out, re.MULTILINE) for noun in NOUNS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist(page):
    for fence in FENCE.findall(page.read_text()):
        for line in calls(fence):
            check(line)


def test_the_pages_hold_commands():
    found = [words for page in PAGES for fence in FENCE.findall(page.read_text()) for words in calls(fence)]
    named = {" ".join(words[:2]) for words in found}
    assert {"replay verify", "ledger backup", "operator metagraph", "serve --profile", "nodes register"} <= named
