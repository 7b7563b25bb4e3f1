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


class Change(msgspec.Struct, frozen=True):
    """One row after a commit.

    record: None where the row is gone. pos: the event that changed it last. created: the event that made it, or
    None where it was there before. remade: it was removed in between.
    """

    record: object | None
    pos: int
    created: int | None
    remade: bool


type Changes = dict[tuple[str, str], Change]


class Journal:
    """Every change since the last commit, oldest first. One journal serves all tables of a state.

    `pos` is the number of the event that is being folded.
    """

    __slots__ = ("entries", "pos")

    def __init__(self) -> None:
        self.entries: list[tuple[Table[Any, Any], Any, object, int]] = []
        self.pos = 0

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self.entries)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything after `mark`, newest first."""
        entries = self.entries
        while len(entries) > mark:
            table, key, old, _ = entries.pop()
            if old is MISSING:
                dict.pop(table, key, None)
            else:
                dict.__setitem__(table, key, old)

    def commit(self) -> Changes:
        """Forget how to undo. Returns (table name, key) -> change, for mirrored tables."""
        changes: Changes = {}
        for table, key, old, pos in self.entries:
            if not table.mirrored:
                continue
            before = changes.get((table.name, key))
            created = pos if old is MISSING else before.created if before else None
            remade = (old is MISSING and before is not None) or (before is not None and before.remade)
            changes[table.name, key] = Change(dict.get(table, key), pos, created, remade)
        self.entries.clear()
        return changes

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
        self.journal.entries.append((self, key, self.get(key, MISSING), self.journal.pos))
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        self.journal.entries.append((self, key, self[key], self.journal.pos))
        dict.__delitem__(self, key)

    def drop(self, key: K) -> None:
        """Remove the key if it is there."""
        if key in self:
            del self[key]

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError(f"table {self.name}: this change would not be journaled")

    pop = popitem = clear = update = setdefault = __ior__ = cast(Any, _refuse)
