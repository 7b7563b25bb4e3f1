"""The policies and metagraph lists that were adopted, and which is in force when."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from events.envelope import Event, Recorded
from events.types.policy import MetagraphAdopted, MetagraphPart, Policy, PolicyAdopted
from projections.state import Journal, Table


class PolicyRecord(msgspec.Struct, frozen=True):
    """A policy and since when it holds."""

    digest: str
    effective_us: int
    pos: int
    policy: Policy


class MetagraphRecord(msgspec.Struct, frozen=True):
    """A list of hotkeys and owners, in force from `at_us` until the next. `owners`: hotkey -> coldkey.

    parts: how many events bring its entries.
    """

    digest: str
    netuid: int
    block: int
    at_us: int
    pos: int
    owners: dict[str, str]
    parts: int = 0


class PolicyState:
    """policies and metagraphs are numbered from 0 in the order of adoption; times of effect never decrease.

    parts: digest of a list that is still being adopted -> what has come of it.
    """

    def __init__(self, journal: Journal) -> None:
        self.policies: Table[int, PolicyRecord] = Table("policy", journal)
        self.metagraphs: Table[int, MetagraphRecord] = Table("metagraph", journal)
        self.parts: Table[str, MetagraphRecord] = Table("metagraph_part", journal)

    def policy_at(self, at_us: int) -> PolicyRecord:
        """The policy in force at this time."""
        for number in range(len(self.policies) - 1, 0, -1):
            if self.policies[number].effective_us <= at_us:
                return self.policies[number]
        return self.policies[0]

    def policy_by_digest(self, digest: str) -> PolicyRecord | None:
        """The policy with this digest, the newest if it was adopted more than once."""
        for number in range(len(self.policies) - 1, -1, -1):
            if self.policies[number].digest == digest:
                return self.policies[number]
        return None

    def metagraph_at(self, at_us: int) -> MetagraphRecord | None:
        """The metagraph list in force at this time, or None before the first."""
        for number in range(len(self.metagraphs) - 1, -1, -1):
            if self.metagraphs[number].at_us <= at_us:
                return self.metagraphs[number]
        return None


def _policy_adopted(state: PolicyState, recorded: Recorded) -> None:
    event = cast(PolicyAdopted, recorded.event)
    number = len(state.policies)
    state.policies[number] = PolicyRecord(event.digest, event.effective_us, recorded.pos, event.policy)


def _metagraph_adopted(state: PolicyState, recorded: Recorded) -> None:
    event = cast(MetagraphAdopted, recorded.event)
    record = MetagraphRecord(event.digest, event.netuid, event.block, recorded.at_us, recorded.pos, {}, event.parts)
    if event.parts == 0:
        state.metagraphs[len(state.metagraphs)] = record
    else:
        state.parts[event.digest] = record


def _metagraph_part(state: PolicyState, recorded: Recorded) -> None:
    event = cast(MetagraphPart, recorded.event)
    record = state.parts[event.digest]
    owners = record.owners | {entry.hotkey: entry.coldkey for entry in event.entries}
    record = replace(record, owners=owners)
    if event.part < record.parts:
        state.parts[event.digest] = record
        return
    del state.parts[event.digest]
    state.metagraphs[len(state.metagraphs)] = record


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    PolicyAdopted: _policy_adopted,
    MetagraphAdopted: _metagraph_adopted,
    MetagraphPart: _metagraph_part,
}
