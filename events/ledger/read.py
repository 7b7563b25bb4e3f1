"""Reading a ledger file, while it is written or at rest."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import apsw
import msgspec

from events.errors import LedgerDamaged
from events.ledger import files, health
from events.ledger.batch import command_id
from events.merkle import Tree

_PAGE = (
    "SELECT e.pos, s.name, e.version, e.kind, e.cmd_id, e.entry, e.chain "
    "FROM event e LEFT JOIN stream s ON s.sid = e.sid "
)


class Stored(NamedTuple):
    """A row as it stands in the file. `version`: number in its stream, from 1. `entry`: the exact leaf bytes."""

    pos: int
    stream: str
    version: int
    type: str
    type_version: int
    cmd_id: bytes | None
    entry: bytes
    chain: bytes


class _CommandHash(msgspec.Struct, frozen=True):
    """The one field of an entry that tells commands apart."""

    cmd: str


class LedgerReader:
    """A read-only view that follows the writer. Each call is one short transaction; threads take turns.

    origin: name of the log. public_key: hex, as the file says.

    Raises: NotALedger, LedgerDamaged, LedgerReadOnly
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._turn = threading.RLock()
        self._connection, self._unchangeable = files.open_reader(self.path)
        self._kinds: dict[int, tuple[str, int]] = {}
        try:
            with self._reading() as connection:
                self.origin, self.public_key = health.read_meta(self.path, connection)
        except BaseException:
            self._connection.close()
            raise

    def size(self) -> int:
        """Number of the last committed event, 0 for none."""
        with self._reading() as connection:
            return health.size_of(connection)

    def page(self, after: int, limit: int = 1000) -> list[Stored]:
        """Up to `limit` events with numbers above `after`, in order.

        Raises: LedgerDamaged where a number is missing.
        """
        with self._reading() as connection:
            rows = files.rows(connection, _PAGE + "WHERE e.pos > ? ORDER BY e.pos LIMIT ?", (after, limit))
            self._refuse_gap(rows, after)
            return self._stored(connection, rows)

    def entries(self, after: int, limit: int = 1000) -> list[tuple[int, bytes]]:
        """(number, entry) of up to `limit` events with numbers above `after`: the fast way to replay.

        Raises: LedgerDamaged where a number is missing.
        """
        with self._reading() as connection:
            sql = "SELECT pos, entry FROM event WHERE pos > ? ORDER BY pos LIMIT ?"
            rows: list[tuple[int, bytes]] = files.rows(connection, sql, (after, limit))
            self._refuse_gap(rows, after)
            return rows

    def stream(self, name: str, after: int = 0, limit: int = 1000) -> list[Stored]:
        """Up to `limit` events of one stream with versions above `after`, in order."""
        with self._reading() as connection:
            sql = _PAGE + "WHERE s.name = ? AND e.version > ? ORDER BY e.version LIMIT ?"
            return self._stored(connection, files.rows(connection, sql, (name, after, limit)))

    def command(self, cmd: bytes, cmd_ms: int) -> int | None:
        """Number of the first event of this command, or None if it is not committed."""
        with self._reading() as connection:
            return find_command(connection, cmd, command_id(cmd, cmd_ms))

    def checkpoints(self) -> list[str]:
        """The stored signed checkpoints, by size. Nothing is verified."""
        with self._reading() as connection:
            return [note for (note,) in files.rows(connection, "SELECT note FROM checkpoint ORDER BY size")]

    def tree(self) -> Tree:
        """The Merkle tree of what is committed now, for roots and proofs of any size up to that.

        It reads tiles through this reader, so it ends with it.

        Raises: LedgerDamaged
        """
        with self._reading() as connection:
            return health.load_tree(self.path, connection, health.size_of(connection), self._tile)

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        with self._turn, files.faults(self.path):
            if self._unchangeable and files.has_wal(self.path):
                # Somebody began to write: what was read as unchangeable no longer is.
                self._connection.close()
                self._connection, self._unchangeable = files.open_reader(self.path)
            yield self._connection

    def _tile(self, level: int, number: int) -> bytes:
        with self._reading() as connection:
            return health.read_tile(self.path, connection, level, number)

    def _refuse_gap(self, rows: list[tuple[int, bytes]], after: int) -> None:
        if not rows or rows[-1][0] == max(after, 0) + len(rows):
            return
        for expected, row in enumerate(rows, max(after, 0) + 1):
            if row[0] != expected:
                raise LedgerDamaged(f"{self.path}: event {expected} is missing", pos=expected)

    def _stored(
        self, connection: apsw.Connection, rows: list[tuple[int, str, int, int, bytes, bytes, bytes]]
    ) -> list[Stored]:
        kinds = self._kinds
        found = []
        for pos, stream, version, kind, cmd_id, entry, chain in rows:
            if kind not in kinds:
                kinds.update(
                    {id: (name, tv) for id, name, tv in files.rows(connection, "SELECT id, name, version FROM kind")}
                )
            if kind not in kinds or stream is None:
                raise LedgerDamaged(f"{self.path}: event {pos} names a stream or kind that is not listed", pos=pos)
            found.append(Stored(pos, stream, version, *kinds[kind], cmd_id, entry, chain))
        return found


def find_command(connection: apsw.Connection, cmd: bytes, cmd_id: bytes) -> int | None:
    """Number of the first event of a command; the whole hash is compared, not only the id."""
    found = files.rows(connection, "SELECT pos, entry FROM event WHERE cmd_id = ?", (cmd_id,))
    if not found:
        return None
    pos: int = found[0][0]
    try:
        same = msgspec.json.decode(found[0][1], type=_CommandHash).cmd == cmd.hex()
    except msgspec.MsgspecError as error:
        raise LedgerDamaged(f"event {pos} cannot be read: {error}", pos=pos) from error
    return pos if same else None
