"""The RFC 6962 tree over leaf hashes: roots and proofs for every size it ever had.

Complete subtrees never change, so their hashes are kept in tiles of 256: tile n of level l holds the roots of the
subtrees of 256^l leaves with the numbers 256n to 256n + 255. Only the right edge, fewer than 256 hashes a level,
lives in the tree object.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import msgspec

from events.hashing import EMPTY_ROOT, node_hash

TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
HASH_BYTES = 32

type TileLoader = Callable[[int, int], bytes]


class Tile(msgspec.Struct, frozen=True):
    """A full tile: 256 hashes, 8,192 bytes."""

    level: int
    number: int
    hashes: bytes


class Growth(msgspec.Struct, frozen=True):
    """A tree after further leaves, not yet taken over: `Tree.accept` does that, dropping it undoes nothing."""

    base: int
    size: int
    tiles: tuple[Tile, ...]
    edge: list[list[bytes]]
    peaks: list[bytes]


class Tree:
    """A growing tree. `load(level, number)` returns the hashes of a full tile; without it tiles stay in memory."""

    def __init__(self, load: TileLoader | None = None) -> None:
        self.size = 0
        self._edge: list[list[bytes]] = []
        self._peaks: list[bytes] = []  # roots of the complete subtrees, largest first: one per set bit of size
        self._kept: dict[tuple[int, int], bytes] | None = {} if load is None else None
        self._load = load if load is not None else self._from_memory
        self._rows = lru_cache(maxsize=256)(self._load_rows)

    @classmethod
    def restore(cls, size: int, last_leaves: Sequence[bytes], load: TileLoader) -> "Tree":
        """The tree of `size` leaves from its stored tiles and the hashes of its last `size % 256` leaves.

        Raises: ValueError when the number of leaves is another.
        """
        if len(last_leaves) != size % TILE_WIDTH:
            raise ValueError(f"a tree of {size} leaves needs its last {size % TILE_WIDTH}, not {len(last_leaves)}")
        tree = cls(load)
        tree.size = size
        tree._edge = [list(last_leaves)] if size else []
        level, count = 1, size >> TILE_HEIGHT
        while count:
            first = count - count % TILE_WIDTH
            tree._edge.append([tree._tile_root(level - 1, number) for number in range(first, count)])
            level, count = level + 1, count >> TILE_HEIGHT
        tree._peaks = [peak for row in reversed(tree._edge) for peak in _peaks_of(row)]
        return tree

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash."""
        self.accept(self.grow([leaf]))

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add leaf hashes."""
        self.accept(self.grow(leaves))

    def grow(self, leaves: Iterable[bytes]) -> Growth:
        """What the tree would be with these leaves. The tree itself stays as it is."""
        edge = [list(row) for row in self._edge]
        peaks, size = list(self._peaks), self.size
        tiles: list[Tile] = []
        for leaf in leaves:
            top, level = leaf, 0
            _place(edge, tiles, 0, top, size)
            while size >> level & 1:
                top = node_hash(peaks.pop(), top)
                level += 1
                if level % TILE_HEIGHT == 0:
                    _place(edge, tiles, level // TILE_HEIGHT, top, size)
            peaks.append(top)
            size += 1
        return Growth(self.size, size, tuple(tiles), edge, peaks)

    def accept(self, growth: Growth) -> None:
        """Take over a growth of this very tree. Its tiles must be loadable by now.

        Raises: ValueError for a growth of another size.
        """
        if growth.base != self.size:
            raise ValueError(f"a growth from size {growth.base} does not fit a tree of size {self.size}")
        self.size, self._edge, self._peaks = growth.size, growth.edge, growth.peaks
        if self._kept is not None:
            for tile in growth.tiles:
                self._kept[tile.level, tile.number] = tile.hashes

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` leaves, all of them by default."""
        if size is None or size == self.size:
            return root_of_peaks(self._peaks)
        self._check(0, size)
        return self._range(0, size) if size else EMPTY_ROOT

    def root_after(self, growth: Growth) -> bytes:
        """The root that the tree will have once the growth is accepted."""
        return root_of_peaks(growth.peaks)

    def inclusion_proof(self, index: int, size: int | None = None) -> list[bytes]:
        """Hashes that lead from leaf `index` (from 0) to the root of `size` leaves, the leaf's sibling first.

        Raises: ValueError for an index or a size that the tree does not have.
        """
        size = self.size if size is None else size
        self._check(index + 1, size)
        if index < 0:
            raise ValueError("the leaves of a tree of any size are numbered from 0")
        low, high, proof = 0, size, []
        while high - low > 1:
            middle = low + _split(high - low)
            if index < middle:
                proof.append(self._range(middle, high))
                high = middle
            else:
                proof.append(self._range(low, middle))
                low = middle
        return proof[::-1]

    def consistency_proof(self, old: int, new: int | None = None) -> list[bytes]:
        """Hashes that show the tree of `new` leaves to begin with the tree of `old` leaves.

        Raises: ValueError for sizes that the tree does not have.
        """
        new = self.size if new is None else new
        self._check(old, new)
        if old in (0, new):
            return []
        low, high, proof, whole = 0, new, [], True
        while old != high:
            middle = low + _split(high - low)
            if old <= middle:
                proof.append(self._range(middle, high))
                high = middle
            else:
                proof.append(self._range(low, middle))
                low, whole = middle, False
        if not whole:
            proof.append(self._range(low, high))
        return proof[::-1]

    def tile(self, level: int, number: int) -> bytes:
        """Hashes of a tile at the present size, as c2sp.org/tlog-tiles serves them: 256, or fewer at the right edge.

        Raises: ValueError for a tile that is empty.
        """
        count = self.size >> TILE_HEIGHT * level
        if number < 0 or level < 0 or number * TILE_WIDTH >= count:
            raise ValueError(f"no such tile in a tree of {self.size} leaves")
        if (number + 1) * TILE_WIDTH <= count:
            return self._load(level, number)
        return b"".join(self._edge[level])

    def _check(self, low: int, high: int) -> None:
        if not 0 <= low <= high <= self.size:
            raise ValueError(f"no such part of a tree of {self.size} leaves")

    def _range(self, low: int, high: int) -> bytes:
        width = high - low
        if width & (width - 1) == 0:
            level = width.bit_length() - 1
            return self._subtree(level, low >> level)
        middle = low + _split(width)
        return node_hash(self._range(low, middle), self._range(middle, high))

    def _subtree(self, level: int, number: int) -> bytes:
        """Root of the complete subtree of 2^level leaves with this number."""
        tile_level, height = divmod(level, TILE_HEIGHT)
        first = number << height
        tile, offset = divmod(first, TILE_WIDTH)
        if tile < self.size >> TILE_HEIGHT * (tile_level + 1):
            return self._rows(tile_level, tile)[height][offset >> height]
        row = self._edge[tile_level][offset : offset + (1 << height)]
        return _rows_above(row)[-1][0]

    def _load_rows(self, level: int, number: int) -> list[list[bytes]]:
        return _rows_above(_cut(self._load(level, number)))

    def _tile_root(self, level: int, number: int) -> bytes:
        return _rows_above(_cut(self._load(level, number)))[-1][0]

    def _from_memory(self, level: int, number: int) -> bytes:
        assert self._kept is not None  # noqa: S101 - chosen in __init__
        return self._kept[level, number]


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether `leaf` (a leaf hash) stands at `index` of the tree of `size` leaves with this root (RFC 9162 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    here, last, result = index, size - 1, leaf
    for other in proof:
        if last == 0:
            return False
        if here & 1 or here == last:
            result = node_hash(other, result)
            while here and not here & 1:
                here, last = here >> 1, last >> 1
        else:
            result = node_hash(result, other)
        here, last = here >> 1, last >> 1
    return last == 0 and result == root


def verify_consistency(old: int, new: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the tree (new, new_root) begins with the tree (old, old_root) (RFC 9162 2.1.4.2).

    From size 0 nothing is proven: the answer is True for an empty proof and the empty root.
    """
    if not 0 <= old <= new:
        return False
    if old in (0, new):
        return not proof and old_root == (EMPTY_ROOT if old == 0 else new_root)
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    here, last = old - 1, new - 1
    while here & 1:
        here, last = here >> 1, last >> 1
    first = second = path[0]
    for other in path[1:]:
        if last == 0:
            return False
        if here & 1 or here == last:
            first, second = node_hash(other, first), node_hash(other, second)
            while here and not here & 1:
                here, last = here >> 1, last >> 1
        else:
            second = node_hash(second, other)
        here, last = here >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


def root_of_peaks(peaks: Sequence[bytes]) -> bytes:
    """The root over complete subtrees, largest first."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def _place(edge: list[list[bytes]], tiles: list[Tile], level: int, top: bytes, leaf_index: int) -> None:
    if level == len(edge):
        edge.append([])
    row = edge[level]
    row.append(top)
    if len(row) == TILE_WIDTH:
        tiles.append(Tile(level, leaf_index >> TILE_HEIGHT * (level + 1), b"".join(row)))
        edge[level] = []


def _split(width: int) -> int:
    """The largest power of two below `width`."""
    return 1 << (width - 1).bit_length() - 1


def _cut(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]


def _rows_above(row: list[bytes]) -> list[list[bytes]]:
    """Rows of a complete subtree from its bottom row (a power of two wide) to its root."""
    rows = [row]
    while len(row) > 1:
        row = [node_hash(row[i], row[i + 1]) for i in range(0, len(row), 2)]
        rows.append(row)
    return rows


def _peaks_of(row: list[bytes]) -> list[bytes]:
    peaks, start = [], 0
    for height in range(TILE_HEIGHT - 1, -1, -1):
        if len(row) >> height & 1:
            peaks.append(_rows_above(row[start : start + (1 << height)])[-1][0])
            start += 1 << height
    return peaks
