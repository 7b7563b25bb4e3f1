"""Programs that others wrote read and verify our log without change."""

import hashlib
import sys
from pathlib import Path

import pytest

from events.ledger import LedgerReader

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from ledger_files import ORIGIN, fill, new_ledger

pytestmark = pytest.mark.interop

EVENTS = 1_500


class Published:
    """A real ledger as an auditor meets it: its entries, its tree, its checkpoints."""

    def __init__(self, path: Path) -> None:
        with new_ledger(path) as ledger:
            fill(ledger, 700)
            self.old_size, self.old_root = ledger.size, ledger.root()
            fill(ledger, EVENTS - ledger.size)
            self.size, self.root = ledger.size, ledger.root()
            self.vkey, self.note = ledger.vkey, ledger.checkpoint()
        self.reader = LedgerReader(path)
        self.tree = self.reader.tree()
        self.entries = [entry for _, entry in self.reader.entries(0, EVENTS)]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory):
    published = Published(tmp_path_factory.mktemp("log") / "challenge.sqlite3")
    yield published
    published.reader.close()


def test_aics_tlog_accepts_checkpoint_tiles_and_proofs(published: Published):
    tlog = pytest.importorskip("aics_tlog")
    note = tlog.parse_note(published.note)
    key = tlog.parse_vkey(published.vkey)
    verdict = tlog.verify_checkpoint(note, key, expected_origin=ORIGIN)
    assert verdict.ok, verdict
    head, _ = tlog.checkpoint.checkpoint_from_note(published.note)
    assert (head.origin, head.size, head.root) == (ORIGIN, EVENTS, published.root)

    audit = tlog.audit_tiles(tlog.MemoryTileReader(resources(published)), EVENTS, published.root)
    assert (audit.tiles, audit.bundles) == (7, 6)
    for index in (0, 255, 256, 1_023, 1_279, EVENTS - 1):
        proof = published.tree.inclusion_proof(index)
        leaf = hashlib.sha256(b"\0" + published.entries[index]).digest()
        assert tlog.verify_inclusion(leaf, index, EVENTS, proof, published.root)
        assert not tlog.verify_inclusion(leaf[::-1], index, EVENTS, proof, published.root)
    proof = published.tree.consistency_proof(published.old_size)
    assert tlog.verify_consistency(published.old_size, EVENTS, published.old_root, published.root, proof)


def test_aics_tlog_refuses_what_was_changed(published: Published):
    tlog = pytest.importorskip("aics_tlog")
    key = tlog.parse_vkey(published.vkey)
    forged = published.note.replace(f"\n{EVENTS}\n", f"\n{EVENTS + 1}\n")
    assert not tlog.verify_checkpoint(tlog.parse_note(forged), key, expected_origin=ORIGIN).ok
    for path in ("tile/0/001", "tile/entries/002", "tile/1/000.p/5"):
        changed = resources(published)
        changed[path] = changed[path][:-1] + bytes([changed[path][-1] ^ 1])
        with pytest.raises(tlog.TileVerificationError):
            tlog.audit_tiles(tlog.MemoryTileReader(changed), EVENTS, published.root)


def resources(published: Published) -> dict[str, bytes]:
    """The log's static files, by the paths of c2sp.org/tlog-tiles (fewer than a thousand of each kind)."""
    found = {}
    for level in range(2):
        count = EVENTS >> 8 * level
        for number in range(-(-count // 256)):
            width = min(256, count - 256 * number)
            found[f"tile/{level}/{number:03}{partial(width)}"] = published.tree.tile(level, number)
    for number in range(-(-EVENTS // 256)):
        bundle = published.entries[256 * number : 256 * (number + 1)]
        name = f"tile/entries/{number:03}{partial(len(bundle))}"
        found[name] = b"".join(len(entry).to_bytes(2, "big") + entry for entry in bundle)
    return found


def partial(width: int) -> str:
    return f".p/{width}" if width < 256 else ""


def test_pymerkle_computes_the_same_roots(published: Published):
    pymerkle = pytest.importorskip("pymerkle")
    theirs = pymerkle.InmemoryTree(algorithm="sha256")
    for entry in published.entries:
        theirs.append_entry(entry)
    for size in (1, 2, 3, 255, 256, 257, 700, 1_024, EVENTS):
        assert theirs.get_root(size) == published.tree.root(size)
