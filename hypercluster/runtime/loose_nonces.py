"""Nonces of commands that were decided without an event. Kept in memory for as long as they could be replayed."""

from collections import OrderedDict

KEEP_US = 900_000_000
KEEP_MAX = 200_000


class LooseNonces:
    """(actor, nonce) -> the event number at the time, oldest dropped first. Bounded in age and in count."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def find(self, actor: str, nonce: str) -> int | None:
        """The event number at which it was used, or None."""
        found = self._kept.get((actor, nonce))
        return None if found is None else found[0]

    def keep(self, actor: str, nonce: str, pos: int, received_us: int) -> None:
        """Remember a nonce, forget those that are too old."""
        self._kept[actor, nonce] = (pos, received_us)
        while self._kept:
            key, (_, oldest_us) = next(iter(self._kept.items()))
            if received_us - oldest_us <= KEEP_US and len(self._kept) <= KEEP_MAX:
                return
            del self._kept[key]
