"""The only writer of a ledger file."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import apsw
import msgspec
from nacl.signing import SigningKey

from events import checkpoint
from events.errors import LedgerDamaged, LedgerError
from events.hashing import chain_next, leaf_hash
from events.ledger import files, health
from events.ledger.batch import Batch, Row, command_id
from events.ledger.read import find_command
from events.merkle import Growth

_HEADS_KEPT = 100_000
_CHECKPOINT_BLOCK = 1_024  # of the checkpoints in each such block of sizes only the newest is kept

_INSERT_EVENT = "INSERT INTO event (pos, sid, version, kind, cmd_id, entry, chain) VALUES (?, ?, ?, ?, ?, ?, ?)"

type _EventRow = tuple[int, int, int, int, bytes | None, bytes, bytes]


class _Head(msgspec.Struct, frozen=True, gc=False):
    """A stream's number and its last version."""

    sid: int
    version: int


class _Prepared(msgspec.Struct, frozen=True):
    """Everything that one transaction will write, and what will be true after it."""

    rows: list[_EventRow]
    streams: list[tuple[int, str]]
    kinds: list[tuple[int, str, int]]
    growth: Growth
    chain: bytes
    heads: dict[str, _Head]
    last_cmd_id: bytes


class Ledger:
    """An open ledger that may be appended to; one per file, used by one thread at a time.

    size: number of the last event. last_at_us: its time. origin, vkey: name and verifier key of the log.
    """

    size: int
    last_at_us: int
    origin: str
    vkey: str

    def __init__(self, path: Path, key: SigningKey, lock: files.WriterLock, connection: apsw.Connection) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._key, self._lock, self._connection = key, lock, connection
        self._head_file = files.HeadFile(path)
        start = health.start(path, connection, key, self._head_file.read())
        self.size, self.last_at_us, self.origin, self.vkey = start.size, start.at_us, start.origin, start.vkey
        self._chain, self._tree = start.chain, start.tree
        self._heads: dict[str, _Head] = {}
        kinds = self._rows("SELECT id, name, version FROM kind")
        self._kinds: dict[tuple[str, int], int] = {(name, version): kind for kind, name, version in kinds}
        self._last_sid: int = self._rows("SELECT coalesce(max(sid), 0) FROM stream")[0][0]
        self._last_cmd_id: bytes = self._rows("SELECT coalesce(max(cmd_id), x'') FROM event")[0][0]
        self._fault: LedgerError | None = None
        self._closed = False
        self._sign()
        self._unstored = start.stored_size != start.size

    @classmethod
    def create(cls, path: str | Path, key: SigningKey, origin: str) -> Self:
        """Make a new ledger. Its first event must be `ledger.opened` with this origin and public key.

        Raises: LedgerError (there is a file), BadCheckpoint (the origin cannot name a log), LedgerLocked,
        LedgerReadOnly, DiskFull
        """
        path = Path(path)
        checkpoint.check_name(origin)
        lock = files.WriterLock(path)
        try:
            files.build(path, {"origin": origin, "public_key": bytes(key.verify_key).hex()})
            return cls._locked(path, key, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path, key: SigningKey) -> Self:
        """Open a ledger to append to it, after the checks that a start can afford.

        Raises: NotALedger, LedgerLocked, LedgerReadOnly, LedgerDamaged, LedgerTruncated, WrongKey
        """
        path = Path(path)
        files.refuse_no_file(path)
        lock = files.WriterLock(path)
        try:
            return cls._locked(path, key, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _locked(cls, path: Path, key: SigningKey, lock: files.WriterLock) -> Self:
        connection = files.open_writer(path)
        try:
            return cls(path, key, lock, connection)
        except BaseException:
            connection.close()
            raise

    def batch(self, at_us: int) -> Batch:
        """An empty group at this time, microseconds since 1970.

        Raises: ValueError for a time before the last event's; LedgerDamaged after a commit with unknown outcome.
        """
        if self._fault is not None:
            raise self._fault
        if at_us < self.last_at_us:
            raise ValueError(f"time runs backwards: {at_us} after {self.last_at_us}")
        return Batch(self.size, at_us, self._version_of, self._position_of)

    def commit(self, batch: Batch) -> None:
        """Make the group durable: one transaction, on disk when this returns. On an error nothing has changed.

        Raises: DiskFull, LedgerReadOnly, LedgerLocked, LedgerDamaged; ValueError for a batch of another size.
        """
        if batch.base != self.size:
            raise ValueError(f"the batch was made after event {batch.base}, the ledger ends with {self.size}")
        if self._fault is not None:
            raise self._fault
        if not batch.rows:
            return
        if self.size == 0:
            self._check_opening(batch.rows[0])
        prepared = self._prepare(batch.rows)
        try:
            self._write(prepared)
        except apsw.Error as error:
            self._check_unchanged()
            raise files.explained(self.path, error) from error
        self._advance(prepared, batch.at_us)

    def root(self) -> bytes:
        """Merkle root over all committed events, 32 bytes."""
        return self._tree.root()

    def checkpoint(self) -> str:
        """The signed checkpoint over all committed events."""
        return self._note

    def command(self, cmd: bytes, cmd_ms: int) -> int | None:
        """Number of the first event of this command, or None if it is not committed."""
        with files.faults(self.path):
            return find_command(self._connection, cmd, command_id(cmd, cmd_ms))

    def idle(self) -> None:
        """Use a quiet moment: store the newest checkpoint, move the -wal file's content into the ledger.

        Raises: DiskFull, LedgerReadOnly, LedgerLocked, LedgerDamaged
        """
        self._head_file.sync()
        if self._unstored:
            with files.faults(self.path):
                self._transact(self._store_checkpoint)
            self._unstored = False
        self._truncate_wal()

    def close(self) -> None:
        """Store what can be stored and let the next writer in. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(LedgerError):  # the next start signs and stores the same checkpoint
                self.idle()
        finally:
            self._connection.close()
            self._head_file.close()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_opening(self, row: Row) -> None:
        public_key = bytes(self._key.verify_key).hex()
        try:
            health.check_opening(self.path, row.entry, self.origin, public_key)
        except LedgerError as error:
            raise ValueError(f"the first event must open this ledger: {error}") from error

    def _prepare(self, batch_rows: Sequence[Row]) -> _Prepared:
        rows: list[_EventRow] = []
        leaves: list[bytes] = []
        streams: list[tuple[int, str]] = []
        kinds: list[tuple[int, str, int]] = []
        heads: dict[str, _Head] = {}
        chain, last_cmd_id = self._chain, self._last_cmd_id
        for pos, row in enumerate(batch_rows, self.size + 1):
            head = heads.get(row.stream) or self._head(row.stream)
            if head is None:
                head = _Head(self._last_sid + len(streams) + 1, 0)
                streams.append((head.sid, row.stream))
            heads[row.stream] = _Head(head.sid, row.version)
            leaf = leaf_hash(row.entry)
            chain = chain_next(chain, leaf)
            leaves.append(leaf)
            if row.cmd_id is not None and row.cmd_id > last_cmd_id:
                last_cmd_id = row.cmd_id
            rows.append((pos, head.sid, row.version, self._kind(row.kind, kinds), row.cmd_id, row.entry, chain))
        return _Prepared(rows, streams, kinds, self._tree.grow(leaves), chain, heads, last_cmd_id)

    def _kind(self, name: tuple[str, int], new: list[tuple[int, str, int]]) -> int:
        known = self._kinds.get(name)
        if known is not None:
            return known
        for kind, *rest in new:
            if (rest[0], rest[1]) == name:
                return kind
        new.append((len(self._kinds) + len(new) + 1, *name))
        return new[-1][0]

    def _write(self, prepared: _Prepared) -> None:
        def body(connection: apsw.Connection) -> None:
            if self._unstored:
                self._store_checkpoint(connection)
            if prepared.streams:
                connection.executemany("INSERT INTO stream VALUES (?, ?)", prepared.streams)
            if prepared.kinds:
                connection.executemany("INSERT INTO kind VALUES (?, ?, ?)", prepared.kinds)
            connection.executemany(_INSERT_EVENT, prepared.rows)
            tiles = [(tile.level, tile.number, tile.hashes) for tile in prepared.growth.tiles]
            if tiles:
                connection.executemany("INSERT INTO tile VALUES (?, ?, ?)", tiles)

        self._transact(body)

    def _transact(self, body: Callable[[apsw.Connection], None]) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            body(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _store_checkpoint(self, connection: apsw.Connection) -> None:
        size = self.size
        connection.execute(
            "DELETE FROM checkpoint WHERE size >= ? AND size < ?", (size - size % _CHECKPOINT_BLOCK, size)
        )
        connection.execute("INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?)", (size, self.root(), self._note))

    def _advance(self, prepared: _Prepared, at_us: int) -> None:
        self._tree.accept(prepared.growth)
        self.size, self.last_at_us, self._chain = prepared.growth.size, at_us, prepared.chain
        self._last_sid += len(prepared.streams)
        self._last_cmd_id = prepared.last_cmd_id
        self._kinds.update({(name, version): kind for kind, name, version in prepared.kinds})
        if len(self._heads) > _HEADS_KEPT:
            self._heads.clear()
        self._heads.update(prepared.heads)
        self._sign()
        self._unstored = True

    def _sign(self) -> None:
        """Only what is on disk is ever signed."""
        self._note = checkpoint.sign(self.origin, self.size, self.root(), self._key)
        self._head_file.write(self._note)

    def _check_unchanged(self) -> None:
        """After a failed commit: go on only if the file ends where it ended before."""
        try:
            unchanged = not self._connection.in_transaction and health.size_of(self._connection) == self.size
        except apsw.Error:
            unchanged = False
        if not unchanged:
            self._fault = LedgerDamaged(
                f"{self.path}: it is unknown what a failed commit left on disk",
                hint="restart the server: a start reads what is there",
            )

    def _truncate_wal(self) -> None:
        """Readers may be in the way; then the next quiet moment will do."""
        with files.faults(self.path), suppress(apsw.BusyError, apsw.LockedError):
            self._connection.set_busy_timeout(0)
            try:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._connection.set_busy_timeout(files.BUSY_MS)

    def _head(self, stream: str) -> _Head | None:
        head = self._heads.get(stream)
        if head is None:
            sql = "SELECT sid, (SELECT max(version) FROM event WHERE event.sid = stream.sid) FROM stream WHERE name = ?"
            found = self._rows(sql, (stream,))
            if found:
                head = self._heads[stream] = _Head(found[0][0], found[0][1] or 0)
        return head

    def _version_of(self, stream: str) -> int:
        head = self._head(stream)
        return head.version if head else 0

    def _position_of(self, cmd_id: bytes) -> int | None:
        if cmd_id > self._last_cmd_id:  # ids begin with the time, so most are new at first sight
            return None
        found = self._rows("SELECT pos FROM event WHERE cmd_id = ?", (cmd_id,))
        return found[0][0] if found else None

    def _rows(self, sql: str, values: Sequence[int | str | bytes] = ()) -> list[Any]:
        try:
            return files.rows(self._connection, sql, values)
        except apsw.Error as error:
            raise files.explained(self.path, error) from error
