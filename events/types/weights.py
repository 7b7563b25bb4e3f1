"""Weight snapshots: what Base is told, with the exact ledger state it was folded from."""

import msgspec

from events.envelope import Event
from events.registry import event


class Weight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hotkey's share of 1,000,000."""

    hotkey: str
    ppm: int


@event("weights.snapshot")
class WeightsSnapshot(Event, frozen=True):
    """The weights of all hotkeys, folded from the first `size` events, whose Merkle root is `root`."""

    number: int  # from 1
    epoch: int
    previous: str  # digest of the snapshot before; 64 zeros for the first
    digest: str  # sha256 of the canonical snapshot without this field
    size: int
    root: str  # hex
    policy_digest: str
    metagraph_digest: str  # 64 zeros while none is adopted
    weights: tuple[Weight, ...]  # by (-ppm, hotkey bytes)

    def stream(self) -> str:
        return "weights"
