"""The newest weight snapshot."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from events.types.weights import WeightsSnapshot
from projections.state import Journal, Table


class SnapshotRecord(msgspec.Struct, frozen=True):
    """A snapshot and where it stands in the ledger."""

    snapshot: WeightsSnapshot
    pos: int
    at_us: int


class WeightsState:
    """`newest` holds one row, "newest"."""

    def __init__(self, journal: Journal) -> None:
        self.newest: Table[str, SnapshotRecord] = Table("snapshot", journal, mirrored=True)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
