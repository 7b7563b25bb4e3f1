"""The policies and metagraph lists that were adopted, and which is in force when."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from events.types.policy import Policy
from projections.state import Journal, Table


class PolicyRecord(msgspec.Struct, frozen=True):
    """A policy and since when it holds."""

    digest: str
    effective_us: int
    pos: int
    policy: Policy


class MetagraphRecord(msgspec.Struct, frozen=True):
    """A list of hotkeys and owners, in force from `at_us` until the next. `owners`: hotkey -> coldkey."""

    digest: str
    netuid: int
    block: int
    at_us: int
    pos: int
    owners: dict[str, str]


class PolicyState:
    """Both tables are numbered from 0 in the order of adoption."""

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


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
