"""One digest per table of the folded state, to compare two folds without comparing the states."""

import hashlib
from typing import Any

import msgspec

from projections.fold import State

_encoder = msgspec.json.Encoder(order="deterministic")


def fold_digests(state: State) -> dict[str, str]:
    """Table name -> lower-case hex SHA-256 over its rows, each as key and record, in the order of their bytes.

    Insertion order, hash seeds and time zones do not change it. Nested tables count with their contents.
    """
    return {table.name: _digest(table) for table in state.tables()}


def _digest(table: dict[Any, Any]) -> str:
    rows = sorted(_encoder.encode((_plain(key), _plain(value))) for key, value in table.items())
    found = hashlib.sha256()
    for row in rows:
        found.update(len(row).to_bytes(8, "big") + row)
    return found.hexdigest()


def _plain(value: object) -> object:
    """A nested table as its sorted rows, sets sorted; everything else as it is."""
    if isinstance(value, dict):
        return sorted((_encoder.encode((_plain(key), _plain(row))).decode() for key, row in value.items()))
    if isinstance(value, set | frozenset):
        return sorted(_encoder.encode(_plain(entry)).decode() for entry in value)
    return value
