"""Who opened the ledger, under which rules it decides, who operates it."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from events.envelope import Event, Recorded
from events.hashing import leaf_hash
from events.types.ledger import LedgerOpened, OperatorsChanged, RulesActivated
from projections.state import Journal, Table

THE_LEDGER = "ledger"


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
    """`info` holds one row, "ledger"."""

    def __init__(self, journal: Journal) -> None:
        self.info: Table[str, LedgerInfo] = Table("ledger", journal, mirrored=True)


def _opened(state: LedgerState, recorded: Recorded) -> None:
    event = cast(LedgerOpened, recorded.event)
    state.info[THE_LEDGER] = LedgerInfo(
        origin=event.origin,
        profile=event.profile,
        public_key=event.public_key,
        slug=event.slug,
        audience=event.audience,
        operators=event.operators,
        release=event.release,
        seed=leaf_hash(recorded.entry),
        opened_us=recorded.at_us,
    )


def _rules_activated(state: LedgerState, recorded: Recorded) -> None:
    event = cast(RulesActivated, recorded.event)
    state.info[THE_LEDGER] = replace(state.info[THE_LEDGER], rules=event.rules, release=event.release)


def _operators_changed(state: LedgerState, recorded: Recorded) -> None:
    event = cast(OperatorsChanged, recorded.event)
    state.info[THE_LEDGER] = replace(state.info[THE_LEDGER], operators=event.operators)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    LedgerOpened: _opened,
    RulesActivated: _rules_activated,
    OperatorsChanged: _operators_changed,
}
