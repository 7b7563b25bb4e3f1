"""Which keys have spoken, with which scheme, which nonces are used up, and what each may still have refused."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from projections.state import Journal, Table


class KeyRecord(msgspec.Struct, frozen=True):
    """A hotkey that has a recorded command. `scheme` is bound by the first; `accepted` counts accepted ones."""

    hotkey: str
    scheme: str
    first_pos: int
    accepted: int = 0


class NonceUse(msgspec.Struct, frozen=True):
    """Where a nonce was used up."""

    pos: int
    at_us: int


class RefusalBudget(msgspec.Struct, frozen=True):
    """A token bucket: `milli_tokens` left at `at_us`."""

    milli_tokens: int
    at_us: int


class RequestRecord(msgspec.Struct, frozen=True):
    """The first answer to a client_request_id: the same body again gets it again."""

    body_digest: str
    subject: str
    pos: int


class IdentityState:
    """nonces: bucket number -> table of (hotkey, nonce); buckets are dropped whole when their window is over."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.keys: Table[str, KeyRecord] = Table("key", journal, mirrored=True)
        self.nonces: Table[int, Table[tuple[str, str], NonceUse]] = Table("nonce_bucket", journal)
        self.budgets: Table[str, RefusalBudget] = Table("refusal_budget", journal)
        self.refused_bytes: Table[int, int] = Table("refused_bytes_per_day", journal)
        self.requests: Table[tuple[str, str, str], RequestRecord] = Table("request", journal)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}


def observe_command(state: IdentityState, recorded: Recorded) -> None:
    """Note the command that this first event of its answer records."""
