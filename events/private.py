"""Private values, apart from the ledger: an event holds a commitment, this file holds what it commits to.

Values are written before the event that commits to them and can be deleted after it; leaf, chain, proofs and replay
stay valid, for no fold reads them. The file is never exported.
"""

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import apsw
import msgspec

from events.errors import LedgerDamaged, LedgerReadOnly, NotALedger
from events.hashing import commit_value
from events.ledger.files import faults, rows, sync_directory

_APPLICATION_ID = 0x48795076
_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS private (
    commitment TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    field TEXT NOT NULL,
    salt BLOB NOT NULL,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS private_owner ON private (owner);
CREATE INDEX IF NOT EXISTS private_field ON private (field);
"""


class PrivateValue(msgspec.Struct, frozen=True):
    """One value. owner: what it belongs to, as `job/<id>`; all values of an owner are deleted together."""

    commitment: str
    owner: str
    field: str
    salt: bytes
    value: str


class PrivateStore:
    """The file of private values, readable by this user only. Threads take turns.

    Raises: NotALedger, LedgerDamaged, LedgerReadOnly, DiskFull
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._turn = threading.Lock()
        self._create_for_us_only()
        with faults(self.path):
            self._connection = apsw.Connection(str(self.path))
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def put(self, values: Iterable[PrivateValue]) -> None:
        """Keep all of these, on disk when this returns, or with an error none. The same value again is no change.

        Raises: ValueError for a commitment that does not belong to its salt and value; DiskFull, LedgerReadOnly,
        LedgerLocked
        """
        found = list(values)
        for item in found:
            if commit_value(item.salt, item.value) != item.commitment:
                raise ValueError(f"{item.field}: the commitment is not that of salt and value")
        with self._turn, faults(self.path), self._connection:
            self._connection.executemany(
                "INSERT INTO private VALUES (?, ?, ?, ?, ?) ON CONFLICT (commitment) DO NOTHING",
                [(item.commitment, item.owner, item.field, item.salt, item.value) for item in found],
            )

    def get(self, commitment: str) -> str | None:
        """The value, or None where it was never kept or has been deleted.

        Raises: LedgerDamaged when the stored value is not what was committed to.
        """
        with self._turn, faults(self.path):
            row = rows(self._connection, "SELECT salt, value FROM private WHERE commitment = ?", (commitment,))
        if not row:
            return None
        salt, value = row[0]
        if commit_value(salt, value) != commitment:
            raise LedgerDamaged(f"{self.path}: the value of {commitment} is damaged")
        return str(value)

    def find(self, field: str) -> str | None:
        """A value that was kept under this field name, or None. Its commitment is checked as in `get`."""
        with self._turn, faults(self.path):
            row = rows(self._connection, "SELECT commitment FROM private WHERE field = ? LIMIT 1", (field,))
        return self.get(row[0][0]) if row else None

    def delete_owner(self, owner: str) -> int:
        """Delete all values of an owner and overwrite where they stood. Returns how many there were."""
        with self._turn, faults(self.path):
            with self._connection:
                self._connection.execute("DELETE FROM private WHERE owner = ?", (owner,))
                deleted: int = self._connection.changes()
            # What was deleted still stands in the -wal file until that is emptied.
            rows(self._connection, "PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create_for_us_only(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LedgerReadOnly(f"{self.path}: {error.strerror}") from error
        os.close(handle)
        sync_directory(self.path.parent)

    def _prepare(self) -> None:
        connection = self._connection
        connection.set_busy_timeout(2_000)
        (found,) = rows(connection, "PRAGMA application_id")[0]
        (version,) = rows(connection, "PRAGMA user_version")[0]
        if rows(connection, "SELECT name FROM sqlite_schema") and (found, version) != (_APPLICATION_ID, _FORMAT):
            raise NotALedger(f"{self.path} is no file of private values that this release reads")
        rows(connection, "PRAGMA journal_mode=WAL")
        rows(connection, "PRAGMA synchronous=FULL")
        rows(connection, "PRAGMA secure_delete=ON")
        with connection:
            rows(connection, f"PRAGMA application_id={_APPLICATION_ID}")
            rows(connection, f"PRAGMA user_version={_FORMAT}")
            rows(connection, _SCHEMA)
