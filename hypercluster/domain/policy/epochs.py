"""Epochs: their numbers and their edges. Pure.

The number of an epoch is unix seconds // epoch_s. Where a policy changes epoch_s, the first new epoch begins at a
multiple of the new epoch_s and has the number that this rule gives if that is above the last old number, else the
last old number plus one; numbers go on from there. So they never repeat and never fall.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypercluster.domain.kernel import US_PER_S
from projections.fold import State
from projections.folds.policy import PolicyRecord

type Policies = State | Sequence[PolicyRecord]


@dataclass(frozen=True, slots=True)
class _Run:
    """Epochs of one length: the first begins at `start_us` and has number `first`."""

    start_us: int
    first: int
    length_us: int

    def number_at(self, at_us: int) -> int:
        return self.first + (at_us - self.start_us) // self.length_us


def epoch_of(policies: Policies, at_us: int) -> int:
    """The number of the epoch at this time. `policies`: a state, or all adopted policies, oldest first."""
    return _run_at(policies, at_us).number_at(at_us)


def next_edge_us(policies: Policies, at_us: int) -> int:
    """When the epoch at this time ends under the policy in force then: the first edge after `at_us`."""
    run = _run_at(policies, at_us)
    return at_us + run.length_us - (at_us - run.start_us) % run.length_us


def edge_for(policies: Policies, epoch_s: int, at_us: int) -> int:
    """When a policy adopted at this time takes effect.

    That is the first edge after `at_us`, not before a policy that still waits for its own; for another epoch_s it
    is the first multiple of that at or after the edge.
    """
    records = _records(policies)
    waiting = records[-1]
    edge_us = waiting.effective_us if waiting.effective_us > at_us else next_edge_us(records, at_us)
    if epoch_s == waiting.policy.epoch_s:
        return edge_us
    length_us = epoch_s * US_PER_S
    return -(-edge_us // length_us) * length_us


def _records(policies: Policies) -> Sequence[PolicyRecord]:
    return list(policies.policy.policies.values()) if isinstance(policies, State) else policies


def _run_at(policies: Policies, at_us: int) -> _Run:
    records = _records(policies)
    run = _Run(0, 0, records[0].policy.epoch_s * US_PER_S)
    in_force = {record.effective_us: record for record in records[1:] if record.effective_us <= at_us}
    for start_us, record in in_force.items():  # of several with one time of effect the newest holds
        length_us = record.policy.epoch_s * US_PER_S
        if length_us != run.length_us:
            first = max(start_us // length_us, run.number_at(start_us - 1) + 1)
            run = _Run(start_us, first, length_us)
    return run
