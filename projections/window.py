"""The newest credits of one node or hotkey, kept so that a new one, a changed one and a sum each cost the same.

A window holds more than the policy sums up: when credits are taken back, older ones move up. Only when that reserve
is used up are the older ones asked for again.
"""

from bisect import insort
from collections.abc import Callable, Iterable

import msgspec

RESERVE = 128


class Entry(msgspec.Struct, frozen=True, order=True):
    """One attempt's credit in one role, above 0. pos: the attempt's place among all scores."""

    started_us: int
    pos: int
    hotkey: str
    amount: int


class Window(msgspec.Struct, frozen=True):
    """entries: oldest first, and none that is left out is newer than them. older: whether any was ever left out.

    total and hotkey: sum and only owner of the newest `size` entries (hotkey None: several owners).
    """

    entries: tuple[Entry, ...] = ()
    older: bool = False
    total: int = 0
    hotkey: str | None = None


type Refill = Callable[[], Iterable[Entry]]

EMPTY = Window()


def changed(window: Window, pos: int, entry: Entry | None, size: int, refill: Refill) -> Window:
    """The window after the credit of attempt `pos` became `entry` (None: nothing).

    size: how many entries count. refill: all credits of this owner as they are after the change.
    """
    entries = [held for held in window.entries if held.pos != pos]
    older = window.older
    if entry is not None:
        if entries and older and entry < entries[0]:
            return _sealed(entries, older, size, refill)
        insort(entries, entry)
    if len(entries) > size + RESERVE:
        del entries[: len(entries) - size - RESERVE]
        older = True
    return _sealed(entries, older, size, refill)


def amount_for(window: Window, hotkey: str, size: int, since_us: int) -> int:
    """What the newest `size` entries that started at `since_us` or later give this hotkey."""
    counted = window.entries[-size:] if size > 0 else ()
    if not counted or counted[-1].started_us < since_us:
        return 0
    if counted[0].started_us >= since_us and window.hotkey is not None:
        return window.total if window.hotkey == hotkey else 0
    return sum(entry.amount for entry in counted if entry.started_us >= since_us and entry.hotkey == hotkey)


def _sealed(entries: list[Entry], older: bool, size: int, refill: Refill) -> Window:
    if older and len(entries) < size:
        entries = sorted(refill())
        older = len(entries) > size + RESERVE
        entries = entries[-(size + RESERVE) :]
    counted = entries[-size:] if size > 0 else []
    owners = {entry.hotkey for entry in counted}
    sole = next(iter(owners)) if len(owners) == 1 else None
    return Window(tuple(entries), older, sum(entry.amount for entry in counted), sole)
