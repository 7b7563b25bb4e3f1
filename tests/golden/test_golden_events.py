"""Bytes that stand in real ledgers never change."""

import json
import sys
from pathlib import Path

import pytest

import events.types  # noqa: F401 - registers all types
from events import codec, registry
from events.hashing import leaf_hash

sys.path.insert(0, str(Path(__file__).parent))
import regenerate

FILES = sorted(regenerate.GOLDEN.glob("*.json"))


def entry(path: Path) -> bytes:
    return codec.encode(json.loads(path.read_text())["entry"])


def test_every_type_has_a_golden_file():
    missing = [cls.type_name for cls in registry.known_types().values() if not regenerate.file_of(cls).exists()]
    assert missing == [], "run tests/golden/regenerate.py"


def test_every_version_has_an_upcaster():
    registry.check_complete()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_bytes_keep_their_hash_and_are_read(path: Path):
    assert leaf_hash(entry(path)).hex() == json.loads(path.read_text())["leaf_hash"]
    recorded = registry.decode(1, entry(path))
    assert path.stem == f"{recorded.envelope.type}-v{recorded.envelope.tv}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_newest_version_is_written_as_it_always_was(path: Path):
    recorded = registry.decode(1, entry(path))
    if recorded.envelope.tv == recorded.event.type_version:
        assert codec.encode(recorded.event) == bytes(recorded.envelope.data)
        assert regenerate.entry_of(recorded.event) == entry(path)
