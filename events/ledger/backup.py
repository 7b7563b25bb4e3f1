"""A copy of a ledger that is written to meanwhile, verified before it gets its name."""

import os
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec
from nacl.signing import VerifyKey

from events import checkpoint
from events.errors import LedgerDamaged, LedgerError
from events.hashing import chain_next, chain_start, leaf_hash
from events.ledger import files, health
from events.merkle import Tree

_PAGES_PER_STEP = 4_096

type Progress = Callable[[int, int], None]


class Backup(msgspec.Struct, frozen=True):
    """What a backup holds: number of events and their root (32 bytes)."""

    path: Path
    size: int
    root: bytes


def backup(path: str | Path, target: str | Path, progress: Progress | None = None) -> Backup:
    """Copy the ledger at `path` to the new file `target`, as it is at this moment.

    Every entry of the copy is hashed again; the root must be that of the newest checkpoint, chain and tiles must
    agree. The copy appears whole or not at all, as one file without a -wal beside it. progress(done, all) counts pages.

    Raises: LedgerError (target exists), NotALedger, LedgerDamaged, DiskFull, LedgerReadOnly
    """
    path, target = Path(path), Path(target)
    if target.exists():
        raise LedgerError(f"{target} exists already", hint="choose another name; backups are never overwritten")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        _copy(path, partial, progress)
        size, root = _verify(partial)
        _sync(partial)
        os.link(partial, target)
    except OSError as error:
        raise LedgerError(f"{target}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    files.sync_directory(target.parent)
    return Backup(target, size, root)


def _copy(path: Path, partial: Path, progress: Progress | None) -> None:
    source, _ = files.open_reader(path)
    try:
        with files.faults(path):
            # Without a transaction of our own the copy would start again after each commit of the writer.
            source.execute("BEGIN")
            health.size_of(source)
        with files.faults(partial):
            copy = apsw.Connection(str(partial))
            try:
                with copy.backup("main", source, "main") as step:
                    while not step.done:
                        step.step(_PAGES_PER_STEP)
                        if progress is not None:
                            progress(step.page_count - step.remaining, step.page_count)
                copy.execute("PRAGMA journal_mode=DELETE").fetchall()
            finally:
                copy.close()
    finally:
        source.close()


def _verify(copy: Path) -> tuple[int, bytes]:
    connection, _ = files.open_reader(copy)
    try:
        with files.faults(copy):
            origin, public_key = health.read_meta(copy, connection)
            tree, chain = Tree(), chain_start(origin)
            for pos, entry, link in connection.execute("SELECT pos, entry, chain FROM event ORDER BY pos"):
                leaf = leaf_hash(entry)
                chain = chain_next(chain, leaf)
                if pos != tree.size + 1 or chain != link:
                    raise LedgerDamaged(
                        f"{copy}: event {tree.size + 1} does not follow the one before", pos=tree.size + 1
                    )
                tree.append(leaf)
            if (
                health.load_tree(copy, connection, tree.size, health.tile_loader(copy, connection)).root()
                != tree.root()
            ):
                raise LedgerDamaged(f"{copy}: the stored tiles do not belong to the events")
            notes = files.rows(connection, "SELECT note FROM checkpoint ORDER BY size")
        vkey = checkpoint.verifier_key(origin, VerifyKey(bytes.fromhex(public_key)))
        for (note,) in notes:
            health.check_head(copy, tree, note, vkey)
    finally:
        connection.close()
    return tree.size, tree.root()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
