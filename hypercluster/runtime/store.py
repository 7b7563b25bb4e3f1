"""The files of one deployment, opened together: ledger, private values, read models, blobs, keys."""

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from events import registry
from events.blobs import BlobStore
from events.envelope import Recorded
from events.errors import WrongKey
from events.ledger import Ledger, LedgerReader
from events.private import PrivateStore
from projections.fold import State, evolve
from projections.state import Changes
from projections.tables import ReadModels, ReadView

PAGE = 1000
SECRET_BYTES = 32


@dataclass(slots=True)
class Store:
    """Open files and the state folded from them."""

    directory: Path
    ledger: Ledger
    reader: LedgerReader
    state: State
    models: ReadModels
    view: ReadView
    private: PrivateStore
    blobs: BlobStore
    salt_key: bytes

    def close(self) -> None:
        """Close every file."""
        self.reader.close()
        self.private.close()
        self.ledger.close()


def ledger_key(directory: Path) -> SigningKey:
    """The key that signs checkpoints, made at the first start. 32 bytes, mode 0600."""
    path = directory / "keys" / "ledger.key"
    return SigningKey(_secret(path, lambda: bytes(SigningKey.generate())))


def open_store(ledger_path: Path, slug: str) -> Store:
    """Open the deployment whose ledger is this file; a missing file begins a new ledger (without events yet).

    Raises: events.errors.LedgerError
    """
    directory = ledger_path.parent
    directory.mkdir(parents=True, exist_ok=True)
    registry.check_complete()
    key = ledger_key(directory)
    if ledger_path.exists():
        ledger = Ledger.open(ledger_path, key)
    else:
        ledger = Ledger.create(ledger_path, key, f"{slug}-{secrets.token_hex(6)}")
    reader = LedgerReader(ledger_path)
    models = ReadModels(directory / "read-models.sqlite3", ledger.origin.encode())
    state = fold_ledger(reader, models)
    return Store(
        directory,
        ledger,
        reader,
        state,
        models,
        ReadView(models.path),
        PrivateStore(directory / "private.sqlite3"),
        BlobStore(directory / "blobs"),
        _secret(directory / "keys" / "private-salt.key", lambda: secrets.token_bytes(32)),
    )


def fold_ledger(reader: LedgerReader, models: ReadModels) -> State:
    """The state at the ledger's end; on the way the read models catch up, or are rebuilt if they know too much."""
    size, known = reader.size(), models.position()
    if known > size:
        models.reset()
        known = 0
    state = State()
    for page in recorded_pages(reader):
        fresh = [recorded for recorded in page if recorded.pos > known]
        for recorded in page:
            if fresh and recorded.pos == fresh[0].pos:
                state.journal.forget()
            evolve(state, recorded)
        changes: Changes = state.journal.commit()
        if fresh:
            models.apply(changes, fresh, fresh[-1].pos)
    return state


def recorded_pages(reader: LedgerReader, after: int = 0) -> Iterator[list[Recorded]]:
    """All events after a number, decoded, in pages of short transactions."""
    while page := reader.entries(after, PAGE):
        yield [registry.decode(pos, entry) for pos, entry in page]
        after = page[-1][0]


def _secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a secret file, made on first use; complete or absent, never half-written.

    Raises: WrongKey for a file that is no secret of ours
    """
    if path.exists():
        found = path.read_bytes()
        if len(found) != SECRET_BYTES:
            raise WrongKey(f"{path} holds {len(found)} bytes, not {SECRET_BYTES}", hint=f"restore {path} from a backup")
        return found
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, make())
        os.fsync(handle)
    finally:
        os.close(handle)
    fresh.rename(path)
    return path.read_bytes()
