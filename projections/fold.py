"""The whole state of the service at one event number, and the step from one event to the next."""

from collections.abc import Callable
from typing import Any

from events.envelope import Event, Recorded
from projections.folds import identity, jobs, ledger, market, nodes, policy, scores, weights
from projections.state import Journal, Table

FOLD_VERSION = 1

type Step = Callable[[Any, Recorded], None]


class State:
    """All areas side by side, one journal for all. Folded by `evolve`; read by deciders, never by HTTP."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.pos = 0
        self.at_us = 0
        self.ledger = ledger.LedgerState(self.journal)
        self.identity = identity.IdentityState(self.journal)
        self.policy = policy.PolicyState(self.journal)
        self.nodes = nodes.NodesState(self.journal)
        self.market = market.MarketState(self.journal)
        self.jobs = jobs.JobsState(self.journal)
        self.scores = scores.ScoresState(self.journal)
        self.weights = weights.WeightsState(self.journal)

    def tables(self) -> list[Table[Any, Any]]:
        """Every table of every area, by name."""
        areas = (
            self.ledger,
            self.identity,
            self.policy,
            self.nodes,
            self.market,
            self.jobs,
            self.scores,
            self.weights,
        )
        found = [value for area in areas for value in vars(area).values() if isinstance(value, Table)]
        return sorted(found, key=lambda table: table.name)

    def mark(self) -> tuple[int, int, int]:
        """A point to roll back to."""
        return self.journal.mark(), self.pos, self.at_us

    def rollback(self, mark: tuple[int, int, int]) -> None:
        """Undo every change since `mark`."""
        entries, self.pos, self.at_us = mark
        self.journal.rollback(entries)


_AREAS = {
    "ledger": ledger.STEPS,
    "identity": identity.STEPS,
    "policy": policy.STEPS,
    "nodes": nodes.STEPS,
    "market": market.STEPS,
    "jobs": jobs.STEPS,
    "scores": scores.STEPS,
    "weights": weights.STEPS,
}


def _dispatch() -> dict[type[Event], tuple[tuple[str, Step], ...]]:
    found: dict[type[Event], list[tuple[str, Step]]] = {}
    for area, steps in _AREAS.items():
        for event_type, step in steps.items():
            found.setdefault(event_type, []).append((area, step))
    return {event_type: tuple(steps) for event_type, steps in found.items()}


_STEPS = _dispatch()


def evolve(state: State, recorded: Recorded) -> None:
    """Apply one event to every area that cares about it.

    Raises: ValueError when the event does not follow the last one.
    """
    if recorded.pos != state.pos + 1 or recorded.at_us < state.at_us:
        raise ValueError(f"event {recorded.pos} does not follow event {state.pos}")
    state.journal.pos = recorded.pos
    for area, step in _STEPS.get(type(recorded.event), ()):
        step(getattr(state, area), recorded)
    if recorded.envelope.command is not None:
        identity.observe_command(state.identity, recorded)
    state.pos, state.at_us = recorded.pos, recorded.at_us
