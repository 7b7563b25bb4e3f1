"""Mass per hotkey: what the weights are made of. Pure."""

from typing import NamedTuple

from events.types.policy import Policy
from events.types.scores import Score
from hypercluster.domain.scores.codes import CREDIT_SLOT_USED
from projections import credit_index
from projections.credit import OWNER_UNKNOWN, SELF_DEAL, is_self_deal, terms_of
from projections.credit_index import CURRENT, CreditIndex, Mass
from projections.fold import State

__all__ = ["Credit", "Mass", "credits_of", "masses"]


class Credit(NamedTuple):
    """What an attempt earns on one node and why. slots of `covered` were free when it was scored."""

    node_id: str
    provider: str
    value: int
    covered: int
    slots: int
    supply: int
    demand: int
    codes: tuple[str, ...]


def masses(state: State, policy: Policy, at_us: int) -> dict[str, Mass]:
    """Hotkey -> mass under this policy at this time, for every hotkey with a credit in its windows.

    Under the terms of the newest snapshot's policy the index of the fold answers, at a cost that does not grow with
    the number of attempts; under other terms an index is built for the occasion.
    """
    outcomes = {hotkey: ended.outcomes for hotkey, ended in state.scores.ended.items()}
    return credit_index.masses(_index_for(state, policy), outcomes, at_us)


def credits_of(state: State, attempt_key: str) -> tuple[Credit, ...]:
    """The credit of each node of a scored attempt under the terms in force, windows and spam left aside."""
    scored = state.scores.attempts[attempt_key]
    return tuple(_credit(state.scores, scored.pos, scored.score, number) for number in range(len(scored.score.nodes)))


def _index_for(state: State, policy: Policy) -> CreditIndex:
    terms = terms_of(policy)
    if state.scores.terms.get(CURRENT) == terms:
        return state.scores
    return credit_index.built(state.scores.scores(), terms)


def _credit(index: CreditIndex, pos: int, score: Score, number: int) -> Credit:
    node = score.nodes[number]
    work = index.works[node.node_id].get(pos) if node.node_id in index.works else None
    if work is None:
        return Credit(node.node_id, node.provider, node.value, 0, 0, 0, 0, ())
    terms = index.terms[CURRENT]
    covered = work.last - work.first + 1
    reasons = {
        CREDIT_SLOT_USED: work.slots < covered,
        OWNER_UNKNOWN: node.relation == OWNER_UNKNOWN and terms.credit_requires_known_owner > 0,
        SELF_DEAL: is_self_deal(score, node),
    }
    codes = tuple(sorted(code for code, holds in reasons.items() if holds))
    return Credit(node.node_id, node.provider, node.value, covered, work.slots, work.supply, work.demand, codes)
