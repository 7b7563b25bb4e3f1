"""What a verification reads: the ledger file, and the evidence that may lie beside it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from events.blobs import BlobStore
from events.errors import BlobMissing, LedgerDamaged, NotALedger
from events.ledger import LedgerReader, Stored
from events.private import PrivateStore

PAGE = 1000
BLOBS_DIR = "blobs"
PRIVATE_FILE = "private.sqlite3"


@dataclass(slots=True)
class Source:
    """An open ledger. blobs and private are None where no such store lies beside the file, or none can be opened."""

    path: Path
    reader: LedgerReader
    size: int
    blobs: BlobStore | None
    private: PrivateStore | None

    def pages(self) -> Iterator[list[Stored]]:
        """All events in order, `PAGE` at a time.

        Raises: LedgerDamaged at the first row that cannot be read, after the rows before it
        """
        after = 0
        while True:
            try:
                page = self.reader.page(after, PAGE)
            except LedgerDamaged as error:
                if error.pos is not None and error.pos > after + 1:
                    yield self.reader.page(after, error.pos - 1 - after)
                raise
            if not page:
                return
            yield page
            after = page[-1].pos

    def blob(self, digest: str) -> bytes | None:
        """The evidence with this digest, or None where it is withheld. Raises: LedgerDamaged for wrong bytes."""
        if self.blobs is None:
            return None
        try:
            return self.blobs.get(digest)
        except BlobMissing:
            return None


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a ledger file for reading, with what lies beside it.

    Raises: FileNotFoundError, NotALedger, LedgerDamaged
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
    reader = LedgerReader(path)
    try:
        size = reader.size()
        if not size:
            raise NotALedger(f"{path} holds no events")
        blobs = path.parent / BLOBS_DIR
        with _private(path.parent / PRIVATE_FILE) as private:
            yield Source(
                path=path,
                reader=reader,
                size=size,
                blobs=BlobStore(blobs) if blobs.is_dir() else None,
                private=private,
            )
    finally:
        reader.close()


@contextmanager
def _private(path: Path) -> Iterator[PrivateStore | None]:
    """The private values beside the ledger. Only the operator has them; without them bodies count as withheld."""
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        yield None
        return
    with PrivateStore(path) as store:
        yield store
