"""Roots of the reference vectors of Certificate Transparency, and the tree's refusals."""

import pytest

from events.hashing import EMPTY_ROOT, leaf_hash
from events.merkle import Tree, verify_consistency, verify_inclusion

# The eight leaves, and the roots after 1, 2, 3 and 8 of them, of the reference tests of Certificate Transparency.
ENTRIES = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
ENTRIES.append(bytes.fromhex("606162636465666768696a6b6c6d6e6f"))
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


@pytest.fixture
def tree() -> Tree:
    tree = Tree()
    for entry in ENTRIES:
        tree.append(leaf_hash(entry))
    return tree


def test_roots_of_the_reference(tree: Tree):
    assert {size: tree.root(size).hex() for size in ROOTS} == ROOTS
    assert tree.root(0) == EMPTY_ROOT


def test_proofs_end_at_the_roots_of_the_reference(tree: Tree):
    root = bytes.fromhex(ROOTS[8])
    assert verify_inclusion(leaf_hash(ENTRIES[5]), 5, 8, tree.inclusion_proof(5, 8), root)
    assert verify_consistency(3, 8, tree.consistency_proof(3), bytes.fromhex(ROOTS[3]), root)


def test_what_the_tree_does_not_have_is_refused(tree: Tree):
    for ask in (
        lambda: tree.root(9),
        lambda: tree.root(-1),
        lambda: tree.inclusion_proof(8),
        lambda: tree.inclusion_proof(3, 3),
        lambda: tree.inclusion_proof(-1),
        lambda: tree.inclusion_proof(0, 9),
        lambda: tree.consistency_proof(5, 4),
        lambda: tree.consistency_proof(3, 9),
        lambda: tree.tile(0, 1),
        lambda: tree.tile(1, 0),
        lambda: Tree.restore(3, [], lambda level, number: b""),
    ):
        with pytest.raises(ValueError, match="tree of"):
            ask()


def test_tiles_have_the_widths_of_the_format():
    # c2sp.org/tlog-tiles: 70,000 entries are 273 full tiles and 112 hashes, one full and 17, and 1
    tree = Tree()
    tree.extend(number.to_bytes(32, "big") for number in range(70_000))
    assert tree.tile(0, 272)[-32:] == (273 * 256 - 1).to_bytes(32, "big")
    widths = {
        (level, number): len(tree.tile(level, number)) // 32 for level, number in ((0, 273), (1, 0), (1, 1), (2, 0))
    }
    assert widths == {(0, 273): 112, (1, 0): 256, (1, 1): 17, (2, 0): 1}
    assert tree.tile(2, 0) == tree.root(65_536)


def test_a_growth_fits_only_the_tree_it_was_made_from(tree: Tree):
    growth = tree.grow([bytes(32)])
    tree.accept(growth)
    with pytest.raises(ValueError, match="does not fit"):
        tree.accept(growth)


def test_verifying_refuses_sizes_that_cannot_be():
    assert not verify_inclusion(bytes(32), 0, 0, [], EMPTY_ROOT)
    assert not verify_inclusion(bytes(32), -1, 1, [], bytes(32))
    assert not verify_consistency(2, 1, [], bytes(32), bytes(32))
    assert not verify_consistency(3, 5, [], bytes(32), bytes(32))
    assert not verify_consistency(0, 5, [], bytes(32), bytes(32))
    assert verify_consistency(0, 5, [], EMPTY_ROOT, bytes(32))
