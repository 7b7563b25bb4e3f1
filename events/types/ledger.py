"""The ledger itself: who opened it, under which rules it decides, what it refused."""

from events.envelope import Event
from events.registry import event


@event("ledger.opened")
class LedgerOpened(Event, frozen=True):
    """A new ledger began: its name, its profile for ever, the key that signs it and the operators it obeys."""

    origin: str
    profile: str  # production | sim
    public_key: str  # hex, Ed25519
    slug: str
    audience: str
    operators: tuple[str, ...]
    entry_format: int
    release: str

    def stream(self) -> str:
        return "ledger"


@event("rules.activated")
class RulesActivated(Event, frozen=True):
    """From here on decisions follow this rule set, which this release holds."""

    rules: int
    release: str

    def stream(self) -> str:
        return "ledger"


@event("operators.changed")
class OperatorsChanged(Event, frozen=True):
    """An operator replaced the list of operator hotkeys."""

    operators: tuple[str, ...]

    def stream(self) -> str:
        return "ledger"


@event("clock.accepted")
class ClockAccepted(Event, frozen=True):
    """An operator accepted a clock that had jumped; writes go on from `wall_us`."""

    wall_us: int
    last_event_us: int

    def stream(self) -> str:
        return "ledger"


@event("command.refused")
class CommandRefused(Event, frozen=True):
    """A signed command was decided and refused. The signed text stands in the envelope: proof that it was asked."""

    hotkey: str
    kind: str
    code: str
    message: str
    field: str | None = None

    def stream(self) -> str:
        return f"key/{self.hotkey}"


@event("command.noted")
class CommandNoted(Event, frozen=True):
    """A signed command was accepted and changed nothing: what it asked for was so already."""

    hotkey: str
    kind: str
    subject: str

    def stream(self) -> str:
        return f"key/{self.hotkey}"
