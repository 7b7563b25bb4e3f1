"""The newest weight snapshot."""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from events.envelope import Event, Recorded
from events.types.weights import WeightsSnapshot
from projections.state import Journal, Table

NEWEST = "newest"


class SnapshotRecord(msgspec.Struct, frozen=True):
    """A snapshot and where it stands in the ledger."""

    snapshot: WeightsSnapshot
    pos: int
    at_us: int


class WeightsState:
    """`newest` holds one row, "newest"."""

    def __init__(self, journal: Journal) -> None:
        self.newest: Table[str, SnapshotRecord] = Table("snapshot", journal, mirrored=True)


def _snapshot(state: WeightsState, recorded: Recorded) -> None:
    snapshot = cast(WeightsSnapshot, recorded.event)
    held = state.newest.get(NEWEST)
    if snapshot.number != (held.snapshot.number + 1 if held is not None else 1):
        raise ValueError(f"snapshot {snapshot.number} does not follow the newest one")
    state.newest[NEWEST] = SnapshotRecord(snapshot, recorded.pos, recorded.at_us)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {WeightsSnapshot: _snapshot}
