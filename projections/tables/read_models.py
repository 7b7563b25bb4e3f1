"""Read models in SQLite: the folds' records as rows, written after each commit, read by HTTP and workers.

One writer (`ReadModels`), any number of readers (`ReadView`). Rows carry `created`, the number of the event that
made them, which is also the cursor of lists.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from events.envelope import Recorded
from projections.fold import FOLD_VERSION
from projections.state import Change, Changes
from projections.tables.mirrors import MIRRORS
from projections.tables.schema import TABLES_VERSION, create_statements
from projections.tables.tags import tags_of

VERSION = f"{FOLD_VERSION}.{TABLES_VERSION}"
_encode = msgspec.json.Encoder(order="deterministic").encode
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(mirror.record) for name, mirror in MIRRORS.items()
}


class Row(NamedTuple):
    """A record with the event that made it and the event that changed it last."""

    created: int
    pos: int
    record: Any


class ReadModels:
    """The only writer of a read model file. `seed` identifies the ledger: another one's rows are thrown away."""

    def __init__(self, path: Path, seed: bytes) -> None:
        self.path, self._seed = path, seed
        try:
            self._open()
        except (apsw.NotADBError, apsw.CorruptError):  # nothing is lost: every row follows from the ledger
            self._db.close()
            for name in (path.name, path.name + "-wal", path.name + "-shm"):
                path.with_name(name).unlink(missing_ok=True)
            self._open()

    def _open(self) -> None:
        self._db = apsw.Connection(str(self.path))
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "journal_size_limit=67108864"):
            self._db.pragma(*pragma.split("="))
        self._ensure_schema()

    def position(self) -> int:
        """The number of the last event whose changes are here."""
        return int(self._db.execute("SELECT pos FROM progress").get)

    def apply(self, changes: Changes, recorded: Sequence[Recorded], pos: int) -> None:
        """Write the changes of a run of events that ends with `pos`, in one transaction."""
        with self._db:
            for (name, key), change in changes.items():
                self._write(name, key, change)
            self._db.executemany(
                "INSERT OR IGNORE INTO event_tag VALUES (?, ?)",
                ((tag, event.pos) for event in recorded for tag in sorted(tags_of(event))),
            )
            self._db.execute("UPDATE progress SET pos = ?", (pos,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _ensure_schema(self) -> None:
        if self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'progress'").get:
            found = self._db.execute("SELECT version, ledger FROM progress").get
            if found == (VERSION, self._seed):
                return
            self.reset()
            return
        with self._db:
            self._create()

    def reset(self) -> None:
        """Throw all rows away, to be written again from event 1."""
        names = [row[0] for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        with self._db:
            for name in names:
                self._db.execute(f'DROP TABLE "{name}"')
            self._create()

    def _create(self) -> None:
        self._db.execute(create_statements())
        self._db.execute("INSERT INTO progress VALUES (1, 0, ?, ?)", (VERSION, self._seed))

    def _write(self, name: str, key: str, change: Change) -> None:
        if change.record is None or change.remade:
            self._db.execute(f'DELETE FROM "{name}" WHERE key = ?', (key,))
        if change.record is None:
            return
        columns = MIRRORS[name].columns
        values = [column(change.record) for column in columns.values()]
        if change.created is None:
            sets = "".join(f', "{column}" = ?' for column in columns)
            self._db.execute(
                f'UPDATE "{name}" SET pos = ?, record = ?{sets} WHERE key = ?',
                (change.pos, _encode(change.record), *values, key),
            )
            return
        marks = ", ?" * len(columns)
        self._db.execute(
            f'INSERT OR REPLACE INTO "{name}" VALUES (?, ?, ?, ?{marks})',
            (key, change.created, change.pos, _encode(change.record), *values),
        )


class ReadView:
    """Reads rows. Each thread gets a read-only connection of its own; every call is one short transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()

    def get(self, table: str, key: str) -> Any | None:
        """The record with this key, or None."""
        found = self._db().execute(f'SELECT record FROM "{_known(table)}" WHERE key = ?', (key,)).get
        return None if found is None else _decoders[table].decode(found)

    def find(
        self,
        table: str,
        where: Mapping[str, str | int] | None = None,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
    ) -> list[Row]:
        """Rows whose indexed columns equal `where`, in the order of `created`.

        after: the cursor, the `created` of the last row seen; 0 starts. With newest_first it runs backwards.
        """
        clauses, values = _clauses(table, where or {})
        order, comparison = ("DESC", "<") if newest_first else ("ASC", ">")
        if after:
            clauses.append(f"created {comparison} ?")
            values.append(after)
        filters = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        query = f'SELECT created, pos, record FROM "{table}"{filters} ORDER BY created {order} LIMIT ?'
        decode = _decoders[table].decode
        rows = self._db().execute(query, (*values, limit))
        return [Row(created, pos, decode(record)) for created, pos, record in rows]

    def count(self, table: str, where: Mapping[str, str | int] | None = None) -> int:
        """How many rows `find` would give without a limit."""
        clauses, values = _clauses(table, where or {})
        filters = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        return int(self._db().execute(f'SELECT count(*) FROM "{table}"{filters}', tuple(values)).get)

    def tagged(self, tags: Iterable[str], *, after: int = 0, before: int | None = None, limit: int = 100) -> list[int]:
        """Numbers of events that carry any of the tags, ascending, after < number < before."""
        wanted = list(tags)
        marks = ", ".join("?" * len(wanted))
        query = (
            f"SELECT DISTINCT pos FROM event_tag WHERE tag IN ({marks}) AND pos > ? AND pos < ? ORDER BY pos LIMIT ?"
        )
        end = before if before is not None else 1 << 53
        return [row[0] for row in self._db().execute(query, (*wanted, after, end, limit))]

    def position(self) -> int:
        """The number of the last event whose changes are here."""
        return int(self._db().execute("SELECT pos FROM progress").get)

    def dump(self) -> list[tuple[str, str, int, int, bytes]]:
        """Every row of every table, sorted: (table, key, created, pos, record). For comparing two files."""
        rows: list[tuple[str, str, int, int, bytes]] = []
        for name in MIRRORS:
            rows += [(name, *row) for row in self._db().execute(f'SELECT key, created, pos, record FROM "{name}"')]
        rows += [("event_tag", tag, pos, pos, b"") for tag, pos in self._db().execute("SELECT tag, pos FROM event_tag")]
        return sorted(rows)

    def _db(self) -> apsw.Connection:
        found: apsw.Connection | None = getattr(self._local, "db", None)
        if found is None:
            found = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
            found.set_busy_timeout(2000)
            self._local.db = found
        return found


def _known(table: str) -> str:
    if table not in MIRRORS:
        raise KeyError(f"no read model {table}")
    return table


def _clauses(table: str, where: Mapping[str, str | int]) -> tuple[list[str], list[str | int]]:
    columns = MIRRORS[_known(table)].columns
    unknown = set(where) - set(columns)
    if unknown:
        raise KeyError(f"read model {table} has no column {sorted(unknown)}")
    return [f'"{column}" = ?' for column in where], list(where.values())
