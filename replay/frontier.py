"""The Merkle root after each event, in memory that grows with the logarithm of the ledger."""

from events.hashing import EMPTY_ROOT, node_hash


class Frontier:
    """Roots of the complete subtrees that cover all leaves so far, largest first (RFC 6962)."""

    __slots__ = ("_roots", "size")

    def __init__(self) -> None:
        self.size = 0
        self._roots: list[bytes] = []

    def append(self, leaf: bytes) -> None:
        """Add the hash of one more leaf."""
        merges = self.size
        self.size += 1
        while merges & 1:
            leaf = node_hash(self._roots.pop(), leaf)
            merges >>= 1
        self._roots.append(leaf)

    def root(self) -> bytes:
        """The root over the leaves so far, 32 bytes."""
        if not self._roots:
            return EMPTY_ROOT
        found = self._roots[-1]
        for left in reversed(self._roots[:-1]):
            found = node_hash(left, found)
        return found
