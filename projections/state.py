"""State that can be taken back: tables of frozen records whose changes are journaled.

The writer folds a command's events before they are committed. A refusal or a failed commit rolls the journal
back; a commit turns it into the set of changed rows, from which the read models are written.
"""

from collections.abc import Hashable
from typing import Any, cast

import msgspec


class _Missing(msgspec.Struct, frozen=True):
    """Marks a key that was absent."""


MISSING = _Missing()


class Journal:
    """Every change since the last commit, oldest first. One journal serves all tables of a state."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[Table[Any, Any], Any, object]] = []

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.entries)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything after `mark`, newest first."""
        entries = self.entries
        while len(entries) > mark:
            table, key, old = entries.pop()
            if old is MISSING:
                dict.pop(table, key, None)
            else:
                dict.__setitem__(table, key, old)

    def commit(self) -> dict[tuple[str, Any], object | None]:
        """Forget how to undo. Returns (table name, key) -> record, or None where it is gone."""
        changed: dict[tuple[str, Any], object | None] = {}
        for table, key, _ in self.entries:
            if table.mirrored:
                changed[table.name, key] = dict.get(table, key)
        self.entries.clear()
        return changed

    def forget(self) -> None:
        """Forget how to undo, without asking what changed."""
        self.entries.clear()


class Table[K: Hashable, V](dict[K, V]):
    """A dictionary of frozen records. Only `[]=`, `del` and `drop` change it; each change is journaled.

    mirrored: whether its rows become rows of the read models; its keys are then text.
    """

    __slots__ = ("journal", "mirrored", "name")

    def __init__(self, name: str, journal: Journal, *, mirrored: bool = False) -> None:
        super().__init__()
        self.name, self.journal, self.mirrored = name, journal, mirrored

    def __setitem__(self, key: K, value: V) -> None:
        self.journal.entries.append((self, key, self.get(key, MISSING)))
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        self.journal.entries.append((self, key, self[key]))
        dict.__delitem__(self, key)

    def drop(self, key: K) -> None:
        """Remove the key if it is there."""
        if key in self:
            del self[key]

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError(f"table {self.name}: this change would not be journaled")

    pop = popitem = clear = update = setdefault = __ior__ = cast(Any, _refuse)
