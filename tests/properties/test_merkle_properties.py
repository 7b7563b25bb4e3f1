"""The tree against the recursive definition of RFC 6962, for all small sizes and across the edges of tiles."""

import hashlib
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from events.merkle import Tree, verify_consistency, verify_inclusion

BIG = 66_000  # beyond one full tile of level 1
big_leaves = [hashlib.sha256(i.to_bytes(4, "big")).digest() for i in range(BIG)]


@cache
def defined_root(low: int, high: int) -> bytes:
    if low == high:
        return hashlib.sha256(b"").digest()
    if high - low == 1:
        return big_leaves[low]
    k = 1
    while k * 2 < high - low:
        k *= 2
    return hashlib.sha256(b"\x01" + defined_root(low, low + k) + defined_root(low + k, high)).digest()


def tree_of(count: int) -> Tree:
    tree = Tree()
    tree.extend(big_leaves[:count])
    return tree


BIG_TREE = tree_of(BIG)


def test_every_small_root_and_proof():
    tree = tree_of(70)
    for size in range(71):
        assert tree.root(size) == defined_root(0, size)
        for index in range(size):
            proof = tree.inclusion_proof(index, size)
            assert verify_inclusion(big_leaves[index], index, size, proof, defined_root(0, size))
        for old in range(size + 1):
            proof = tree.consistency_proof(old, size)
            assert verify_consistency(old, size, proof, defined_root(0, old), defined_root(0, size))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_proofs_across_tiles(data: st.DataObject):
    edges = [255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 65_792, BIG]
    size = data.draw(st.sampled_from(edges) | st.integers(1, BIG))
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.sampled_from([edge for edge in edges if edge <= size] or [size]) | st.integers(0, size))
    root = defined_root(0, size)
    assert BIG_TREE.root(size) == root
    assert verify_inclusion(big_leaves[index], index, size, BIG_TREE.inclusion_proof(index, size), root)
    proof = BIG_TREE.consistency_proof(old, size)
    assert verify_consistency(old, size, proof, defined_root(0, old), root)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 600), st.data())
def test_a_changed_proof_proves_nothing(size: int, data: st.DataObject):
    tree = BIG_TREE
    index = data.draw(st.integers(0, size - 1))
    other = data.draw(st.integers(0, size - 1).filter(lambda i: i != index))
    proof, root = tree.inclusion_proof(index, size), tree.root(size)
    leaf = big_leaves[index]
    place = data.draw(st.integers(0, len(proof) - 1))
    flipped = [*proof[:place], bytes([proof[place][0] ^ 1]) + proof[place][1:], *proof[place + 1 :]]
    assert not verify_inclusion(leaf, index, size, flipped, root)
    assert not verify_inclusion(leaf, other, size, proof, root)
    assert not verify_inclusion(big_leaves[other], index, size, proof, root)
    assert not verify_inclusion(leaf, index, size, proof[:-1], root)
    assert not verify_inclusion(leaf, index, size, [*proof, leaf], root)
    assert not verify_inclusion(leaf, size, size, proof, root)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 600), st.data())
def test_a_forked_tree_is_not_consistent(size: int, data: st.DataObject):
    old = data.draw(st.integers(1, size - 1))
    forked = Tree()
    changed = data.draw(st.integers(0, old - 1))
    forked.extend(leaf[::-1] if i == changed else leaf for i, leaf in enumerate(big_leaves[:size]))
    honest_old, honest_new = BIG_TREE.root(old), BIG_TREE.root(size)
    proof = BIG_TREE.consistency_proof(old, size)
    assert not verify_consistency(old, size, forked.consistency_proof(old, size), honest_old, forked.root())
    assert not verify_consistency(old, size, proof, forked.root(old), honest_new)
    assert not verify_consistency(old, size, [*proof, honest_old], honest_old, honest_new)
    if proof:
        assert not verify_consistency(old, size, proof[:-1], honest_old, honest_new)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=6), st.integers(0, 300))
def test_groups_do_not_matter_and_a_dropped_growth_leaves_no_trace(groups: list[int], dropped: int):
    tree, done = Tree(), 0
    for count in groups:
        tree.grow(big_leaves[done : done + dropped])
        growth = tree.grow(big_leaves[done : done + count])
        done += count
        assert tree.root_after(growth) == defined_root(0, done)
        tree.accept(growth)
    assert (tree.size, tree.root()) == (done, defined_root(0, done))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0, 1, 255, 256, 257, 65_535, 65_536, 65_537, BIG]) | st.integers(0, BIG), st.integers(0, 300))
def test_a_tree_restored_from_tiles_goes_on_as_if_never_put_away(size: int, more: int):
    kept = tree_of(size)
    more = min(more, BIG - size)
    restored = Tree.restore(size, big_leaves[size - size % 256 : size], kept._from_memory)
    assert restored.root() == defined_root(0, size)
    growth = restored.grow(big_leaves[size : size + more])
    assert restored.root_after(growth) == defined_root(0, size + more)
    assert all(len(tile.hashes) == 8192 for tile in growth.tiles)
