"""Who opened the ledger, under which rules it decides, who operates it."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from projections.state import Journal, Table


class LedgerInfo(msgspec.Struct, frozen=True):
    """The ledger's own facts. `seed` is the leaf hash of event 1, mixed into every id."""

    origin: str
    profile: str
    public_key: str
    slug: str
    audience: str
    operators: tuple[str, ...]
    release: str
    seed: bytes
    opened_us: int
    rules: int = 0


class LedgerState:
    """`info` holds one row, "ledger"; `head` one row, "head": (pos, at_us) of the last event."""

    def __init__(self, journal: Journal) -> None:
        self.info: Table[str, LedgerInfo] = Table("ledger", journal, mirrored=True)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
