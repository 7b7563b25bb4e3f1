"""The ledger's files: connections, the writer's lock, the head file, and what SQLite's errors mean here.

challenge.sqlite3        the ledger
challenge.sqlite3-wal    written by SQLite; belongs to the ledger and must be copied with it
challenge.sqlite3.lock   held by the writer
challenge.sqlite3.head   the newest signed checkpoint, outside the ledger: shows that an older copy was put in its place
"""

import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw

from events.errors import DiskFull, LedgerDamaged, LedgerError, LedgerLocked, LedgerReadOnly, NotALedger

APPLICATION_ID = 0x48794C67
FORMAT = 1
TABLES = frozenset({"meta", "stream", "kind", "event", "tile", "checkpoint"})

BUSY_MS = 2_000
_HEAD_MAX_BYTES = 4_096
_READ_HINT = "give this user read access to the file and its directories"
_NO_ROOM = (
    apsw.SQLITE_IOERR_WRITE,
    apsw.SQLITE_IOERR_SHMSIZE,
    apsw.SQLITE_IOERR_TRUNCATE,
)
_MEANING: tuple[tuple[type[apsw.Error], type[LedgerError], str], ...] = (
    (apsw.FullError, DiskFull, "the disk is full"),
    (apsw.ReadOnlyError, LedgerReadOnly, "the file or its directory cannot be written"),
    (apsw.CantOpenError, LedgerReadOnly, "the file cannot be opened"),
    (apsw.PermissionsError, LedgerReadOnly, "access is denied"),
    (apsw.BusyError, LedgerLocked, "another program holds the file"),
    (apsw.LockedError, LedgerLocked, "another program holds the file"),
    (apsw.NotADBError, NotALedger, "the file is no SQLite database"),
    (apsw.CorruptError, LedgerDamaged, "the file is damaged"),
    (apsw.ConstraintError, LedgerDamaged, "a rule of the schema is broken"),
    (apsw.SQLError, LedgerDamaged, "the schema is not that of a ledger"),
    (apsw.IOError, LedgerDamaged, "the disk failed"),
    (apsw.ConnectionClosedError, LedgerError, "the ledger is closed"),
)


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Say in our words what SQLite says: no apsw error leaves this package."""
    try:
        yield
    except apsw.Error as error:
        raise explained(path, error) from error


def explained(path: Path, error: apsw.Error) -> LedgerError:
    """The error of this package for one of SQLite."""
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) in _NO_ROOM:
        return DiskFull(f"{path}: the disk takes no more: {error}")
    for theirs, ours, meaning in _MEANING:
        if isinstance(error, theirs):
            return ours(f"{path}: {meaning}: {error}")
    return LedgerError(f"{path}: {error}")


class WriterLock:
    """An exclusive lock on `<path>.lock`, held until `release` or the end of the process.

    Raises: LedgerLocked, LedgerReadOnly
    """

    def __init__(self, path: Path) -> None:
        lock = path.with_name(path.name + ".lock")
        try:
            self._file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LedgerReadOnly(f"{lock}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise LedgerLocked(f"{path}: another process writes to this ledger") from error

    def release(self) -> None:
        """Let the next writer in."""
        os.close(self._file)


class HeadFile:
    """The newest signed checkpoint in a file of its own. It may be behind the ledger, never ahead of it.

    It is a tripwire: it may be missing or unreadable, and a failure to write it does not fail a commit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".head")
        self._file: int | None = None

    def read(self) -> str | None:
        """The note, or None where there is none that could be one."""
        try:
            with self._path.open("rb") as file:
                return file.read(_HEAD_MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            return None

    def write(self, note: str) -> None:
        """Replace the note in place; `sync` makes it durable."""
        with suppress(OSError):
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            data = note.encode()
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))

    def sync(self) -> None:
        """Make the note durable."""
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self.sync()
            os.close(self._file)
            self._file = None


def build(path: Path, meta: dict[str, str]) -> None:
    """Make an empty ledger file; it appears whole or not at all. The caller holds the lock.

    Raises: LedgerError (there is a file), DiskFull, LedgerReadOnly
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with faults(fresh):
        connection = apsw.Connection(str(fresh))
        try:
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(files("events.ledger").joinpath("schema.sql").read_text())
            connection.executemany("INSERT INTO meta VALUES (?, ?)", list(meta.items()))
            connection.execute("COMMIT")
        finally:
            connection.close()
    try:
        os.link(fresh, path)
    except FileExistsError as error:
        raise LedgerError(f"{path} exists already", hint="open it, or choose another path") from error
    finally:
        fresh.unlink()
    sync_directory(path.parent)


def open_writer(path: Path) -> apsw.Connection:
    """The connection that may write: WAL, every commit on disk before it returns.

    Raises: NotALedger, LedgerDamaged, LedgerReadOnly
    """
    refuse_no_file(path)
    with faults(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            identify(path, connection)
            if connection.readonly("main"):
                raise LedgerReadOnly(f"{path}: the file cannot be written")
            connection.set_busy_timeout(BUSY_MS)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA wal_autocheckpoint=4000")
            connection.execute("PRAGMA journal_size_limit=67108864")
            connection.execute("PRAGMA recursive_triggers=ON")  # REPLACE then meets the delete trigger too
        except BaseException:
            connection.close()
            raise
    return connection


def open_reader(path: Path) -> tuple[apsw.Connection, bool]:
    """A connection that cannot write, and whether it takes the file for unchangeable.

    A file in a directory that cannot be written, without a -wal file beside it, is read as unchangeable: nobody
    writes to it, or SQLite would have made that file.

    Raises: NotALedger, LedgerDamaged, LedgerReadOnly
    """
    refuse_no_file(path)
    uri = path.resolve().as_uri()
    with faults(path):
        try:
            return _checked_reader(path, uri + "?mode=ro"), False
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            if has_wal(path):
                raise LedgerReadOnly(
                    f"{path}: there is a -wal file, and its directory cannot be written",
                    hint="copy the ledger together with its -wal file to a directory that you can write",
                ) from error
            return _checked_reader(path, uri + "?mode=ro&immutable=1"), True


def _checked_reader(path: Path, uri: str) -> apsw.Connection:
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA query_only=ON")
        identify(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def rows(connection: apsw.Connection, sql: str, values: Sequence[int | str | bytes] = ()) -> list[Any]:
    """All rows that a query finds, as tuples."""
    return connection.execute(sql, values).fetchall()


def has_wal(path: Path) -> bool:
    """Whether changes may stand beside the file."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except OSError:
        return False


def identify(path: Path, connection: apsw.Connection) -> None:
    """Refuse what is not a ledger of a format that this release reads.

    Raises: NotALedger, LedgerDamaged
    """
    (application_id,) = rows(connection, "PRAGMA application_id")[0]
    (version,) = rows(connection, "PRAGMA user_version")[0]
    names = {name for (name,) in rows(connection, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if application_id != APPLICATION_ID:
        raise NotALedger(f"{path} is {'an SQLite database of another program' if names else 'empty, or no database'}")
    if version != FORMAT:
        raise NotALedger(f"{path} has format {version}; this release reads format {FORMAT}")
    if missing := sorted(TABLES - names):
        raise LedgerDamaged(f"{path}: tables are missing: {', '.join(missing)}")


def refuse_no_file(path: Path) -> None:
    """Refuse what is not there, not a file, or not readable.

    Raises: NotALedger, LedgerError
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise NotALedger(f"{path} does not exist") from error
    except OSError as error:
        raise LedgerError(f"{path} may not be read: {error.strerror}", hint=_READ_HINT) from error
    if not stat.S_ISREG(mode):
        raise NotALedger(f"{path} is not a file")
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise LedgerError(f"{path} may not be read", hint=_READ_HINT)


def sync_directory(directory: Path) -> None:
    """Make a new or renamed file durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
