"""What is checked before a ledger is written to, and the tree rebuilt from its tiles."""

from pathlib import Path

import apsw
import msgspec
from nacl.signing import SigningKey

from events import checkpoint, registry
from events.errors import BadCheckpoint, CodecError, LedgerDamaged, LedgerTruncated, NotALedger, UnknownEvent, WrongKey
from events.hashing import chain_next, chain_start, leaf_hash
from events.ledger.files import faults, rows
from events.merkle import TILE_WIDTH, TileLoader, Tree
from events.types.ledger import LedgerOpened

LINKS_CHECKED = 10_000


class Start(msgspec.Struct, frozen=True):
    """A ledger that passed its checks: chain is its last link (32 bytes), stored_size that of its newest checkpoint."""

    origin: str
    vkey: str
    size: int
    chain: bytes
    at_us: int
    tree: Tree
    stored_size: int


def start(path: Path, connection: apsw.Connection, key: SigningKey, seen: str | None) -> Start:
    """Check the file as far as a start can afford: pages, last links, key, right edge against checkpoints.

    seen: a checkpoint known from outside the ledger, or None; one that is not signed by this key counts as none.

    Raises: LedgerDamaged, LedgerTruncated, WrongKey, NotALedger
    """
    with faults(path):
        _quick_check(path, connection)
        origin, public_key = read_meta(path, connection)
        if public_key != bytes(key.verify_key).hex():
            raise WrongKey(f"{path} was made with the key {public_key}")
        vkey = checkpoint.verifier_key(origin, key.verify_key)
        size = size_of(connection)
        check_opening(path, first_entry(connection), origin, public_key)
        chain, at_us = _check_links(path, connection, origin, size)
        tree = load_tree(path, connection, size, tile_loader(path, connection))
        stored = _newest_note(connection)
        stored_size = check_head(path, tree, stored, vkey) if stored is not None else -1
        if seen is not None and _is_ours(seen, vkey):
            check_head(path, tree, seen, vkey)
    return Start(origin, vkey, size, chain, at_us, tree, stored_size)


def check_head(path: Path, tree: Tree, note: str, vkey: str) -> int:
    """Refuse a tree that does not contain the tree of this checkpoint. Returns the checkpoint's size.

    Raises: LedgerTruncated, LedgerDamaged
    """
    try:
        head = checkpoint.verify(note, vkey)
    except BadCheckpoint as error:
        raise LedgerDamaged(f"{path}: a stored checkpoint is not signed by the ledger's key: {error}") from error
    if head.size > tree.size:
        raise LedgerTruncated(f"{path} has {tree.size} events; a checkpoint over {head.size} was signed for it")
    if tree.root(head.size) != head.root:
        raise LedgerDamaged(
            f"{path}: the first {head.size} events have another root than the checkpoint signed for them"
        )
    return head.size


def load_tree(path: Path, connection: apsw.Connection, size: int, load: TileLoader) -> Tree:
    """The tree of the first `size` events: full tiles as stored, the right edge from the last entries.

    Raises: LedgerDamaged
    """
    first = size - size % TILE_WIDTH
    sql = "SELECT entry FROM event WHERE pos > ? AND pos <= ? ORDER BY pos"
    leaves = [leaf_hash(entry) for (entry,) in rows(connection, sql, (first, size))]
    if len(leaves) != size - first:
        raise LedgerDamaged(f"{path}: events are missing after event {first}", pos=first + 1)
    return Tree.restore(size, leaves, load)


def tile_loader(path: Path, connection: apsw.Connection) -> TileLoader:
    """Reads full tiles through this connection."""

    def load(level: int, number: int) -> bytes:
        with faults(path):
            return read_tile(path, connection, level, number)

    return load


def read_tile(path: Path, connection: apsw.Connection, level: int, number: int) -> bytes:
    """The 8,192 bytes of a full tile.

    Raises: LedgerDamaged
    """
    found = rows(connection, "SELECT hashes FROM tile WHERE level = ? AND number = ?", (level, number))
    if not found:
        raise LedgerDamaged(f"{path}: tile {number} of level {level} is missing")
    hashes: bytes = found[0][0]
    return hashes


def read_meta(path: Path, connection: apsw.Connection) -> tuple[str, str]:
    """Origin and public key (hex) of the file.

    Raises: LedgerDamaged
    """
    found: dict[str, str] = dict(rows(connection, "SELECT name, value FROM meta"))
    if not found.keys() >= {"origin", "public_key"}:
        raise LedgerDamaged(f"{path} does not say its origin and public key")
    return found["origin"], found["public_key"]


def size_of(connection: apsw.Connection) -> int:
    """Number of the last event, 0 for none."""
    size: int = rows(connection, "SELECT coalesce(max(pos), 0) FROM event")[0][0]
    return size


def first_entry(connection: apsw.Connection) -> bytes | None:
    """The entry of event 1."""
    found = rows(connection, "SELECT entry FROM event WHERE pos = 1")
    return found[0][0] if found else None


def check_opening(path: Path, entry: bytes | None, origin: str, public_key: str) -> None:
    """Refuse a ledger whose event 1 does not open it under this origin and key.

    Raises: NotALedger
    """
    if entry is None:
        return
    try:
        opened = registry.decode(1, entry).event
    except (CodecError, UnknownEvent) as error:
        raise NotALedger(f"{path}: event 1 cannot be read: {error}") from error
    if not isinstance(opened, LedgerOpened):
        raise NotALedger(f"{path}: event 1 is {opened.type_name}, not {LedgerOpened.type_name}")
    if (opened.origin, opened.public_key) != (origin, public_key):
        raise NotALedger(f"{path}: event 1 opens another ledger or names another key than the file does")


def _quick_check(path: Path, connection: apsw.Connection) -> None:
    (answer,) = rows(connection, "PRAGMA quick_check(1)")[0]
    if answer != "ok":
        raise LedgerDamaged(f"{path}: {answer}")


def _check_links(path: Path, connection: apsw.Connection, origin: str, size: int) -> tuple[bytes, int]:
    """Recompute the last links. Returns the last one and the time of the last event."""
    first = max(0, size - LINKS_CHECKED)
    chain = chain_start(origin)
    if first:
        found = rows(connection, "SELECT chain FROM event WHERE pos = ?", (first,))
        if not found:
            raise LedgerDamaged(f"{path}: event {first} is missing", pos=first)
        chain = found[0][0]
    expected, entry = first, b""
    sql = "SELECT pos, entry, chain FROM event WHERE pos > ? ORDER BY pos"
    for pos, entry, link in rows(connection, sql, (first,)):
        expected += 1
        chain = chain_next(chain, leaf_hash(entry))
        if pos != expected or chain != link:
            raise LedgerDamaged(f"{path}: event {expected} does not follow the one before", pos=expected)
    return chain, registry.decode(size, entry).at_us if size else 0


def _newest_note(connection: apsw.Connection) -> str | None:
    found = rows(connection, "SELECT note FROM checkpoint ORDER BY size DESC LIMIT 1")
    return found[0][0] if found else None


def _is_ours(note: str, vkey: str) -> bool:
    try:
        checkpoint.verify(note, vkey)
    except BadCheckpoint:
        return False
    return True
