"""Scored attempts, how each hotkey's newest attempts ended, and every hotkey's standing."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from events.envelope import Event, Recorded
from events.types.jobs import AttemptCollecting, AttemptEnded, JobEnded, JobSubmitted
from events.types.policy import PolicyAdopted
from events.types.scores import Score, ScoreRecorded, ScoreRevised
from events.types.weights import WeightsSnapshot
from projections import credit_index
from projections.credit import PPM, Terms, is_self_deal, terms_of
from projections.credit_index import CURRENT, CreditIndex
from projections.state import Journal, Table

OUTCOMES_MAX = 1000  # per submitter; a policy's window is never longer


class ScoredAttempt(msgspec.Struct, frozen=True):
    """The latest revision of an attempt's score. `pos` is that of its first score: the order among attempts."""

    score: Score
    pos: int
    revised_pos: int
    revision: int
    at_us: int


class EndedAttempts(msgspec.Struct, frozen=True):
    """The newest ended attempts of one submitter, oldest first: 1 where the submitter was at fault, else 0."""

    outcomes: tuple[int, ...]


class MainEnd(msgspec.Struct, frozen=True):
    """When every rank of a job's newest attempt had ended, before its outputs were collected."""

    attempt_no: int
    at_us: int
    pos: int


class Standing(msgspec.Struct, frozen=True):
    """A hotkey on the leaderboard. total = supply + demand; demand is after spam, of which keep_ppm is left.

    Brought up to date by every event that concerns the hotkey and, for all hotkeys, by every weight snapshot:
    between two snapshots only ageing is not seen. changed_us: since when the numbers are these. score_count:
    attempts with a score in which the hotkey was submitter or provider; self_deal_count: those with itself.
    """

    hotkey: str
    supply: int
    demand: int
    keep_ppm: int
    total: int
    score_count: int
    self_deal_count: int
    changed_us: int


class ScoresState(CreditIndex):
    """attempts: "<job_id>/<attempt_no>" -> score. main_ends and submitters by job id, terms_by_policy by digest.

    The tables of the credit index follow the terms of the newest snapshot's policy.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.attempts: Table[str, ScoredAttempt] = Table("score", journal, mirrored=True)
        self.ended: Table[str, EndedAttempts] = Table("ended_attempts", journal)
        self.standings: Table[str, Standing] = Table("standing", journal, mirrored=True)
        self.main_ends: Table[str, MainEnd] = Table("main_end", journal)
        self.submitters: Table[str, str] = Table("submitter_of_job", journal)
        self.terms_by_policy: Table[str, Terms] = Table("terms_by_policy", journal)

    def outcomes_of(self, hotkey: str) -> tuple[int, ...]:
        """How its newest attempts ended, newest last."""
        ended = self.ended.get(hotkey)
        return ended.outcomes if ended is not None else ()

    def scores(self) -> Iterator[tuple[int, Score]]:
        """Every attempt's score with the number of its first one."""
        return ((scored.pos, scored.score) for scored in self.attempts.values())


def _score_recorded(state: ScoresState, recorded: Recorded) -> None:
    score = cast(ScoreRecorded, recorded.event).score
    key = f"{score.job_id}/{score.attempt_no}"
    if key in state.attempts:
        raise ValueError(f"attempt {key} is scored twice")
    pos, at_us = recorded.pos, recorded.at_us
    state.attempts[key] = ScoredAttempt(score, pos, pos, 1, at_us)
    if CURRENT in state.terms:
        credit_index.add(state, pos, score)
    for hotkey in _parties(score):
        _count(state, hotkey, score, at_us)
        _stand(state, hotkey, at_us)


def _score_revised(state: ScoresState, recorded: Recorded) -> None:
    event = cast(ScoreRevised, recorded.event)
    key = f"{event.score.job_id}/{event.score.attempt_no}"
    held = state.attempts[key]
    if event.revision != held.revision + 1 or not _same_attempt(event.score, held.score):
        raise ValueError(f"revision {event.revision} of the score of {key} does not follow {held.revision}")
    state.attempts[key] = ScoredAttempt(event.score, held.pos, recorded.pos, event.revision, recorded.at_us)
    if CURRENT not in state.terms:
        return
    concerned = credit_index.revise(state, held.pos, event.score)
    for hotkey in sorted(concerned.union(_parties(event.score))):
        _stand(state, hotkey, recorded.at_us)


def _attempt_ended(state: ScoresState, recorded: Recorded) -> None:
    event = cast(AttemptEnded, recorded.event)
    hotkey = state.submitters[event.job_id]
    outcomes = (*state.outcomes_of(hotkey), 1 if event.fault == "submitter" else 0)
    state.ended[hotkey] = EndedAttempts(outcomes[-OUTCOMES_MAX:])
    if hotkey in state.standings:
        _stand(state, hotkey, recorded.at_us)


def _attempt_collecting(state: ScoresState, recorded: Recorded) -> None:
    event = cast(AttemptCollecting, recorded.event)
    state.main_ends[event.job_id] = MainEnd(event.attempt_no, recorded.at_us, recorded.pos)


def _job_submitted(state: ScoresState, recorded: Recorded) -> None:
    event = cast(JobSubmitted, recorded.event)
    state.submitters[event.job_id] = event.submitter


def _job_ended(state: ScoresState, recorded: Recorded) -> None:
    state.main_ends.drop(cast(JobEnded, recorded.event).job_id)


def _policy_adopted(state: ScoresState, recorded: Recorded) -> None:
    event = cast(PolicyAdopted, recorded.event)
    state.terms_by_policy[event.digest] = terms_of(event.policy)
    if CURRENT not in state.terms:
        credit_index.rebuild(state, state.scores(), state.terms_by_policy[event.digest])


def _snapshot(state: ScoresState, recorded: Recorded) -> None:
    terms = state.terms_by_policy.get(cast(WeightsSnapshot, recorded.event).policy_digest)
    if terms is not None and terms != state.terms[CURRENT]:
        credit_index.rebuild(state, state.scores(), terms)
    for hotkey in list(state.standings):
        _stand(state, hotkey, recorded.at_us)


def _parties(score: Score) -> list[str]:
    return sorted({score.submitter, *(node.provider for node in score.nodes)})


def _same_attempt(score: Score, held: Score) -> bool:
    """Whether a revision speaks of the same work: who, where and when cannot change, only what it is worth."""
    places = [[(node.node_id, node.provider) for node in one.nodes] for one in (score, held)]
    times = [(one.submitter, one.started_us, one.ended_us) for one in (score, held)]
    return places[0] == places[1] and times[0] == times[1]


def _count(state: ScoresState, hotkey: str, score: Score, at_us: int) -> None:
    held = state.standings.get(hotkey) or Standing(hotkey, 0, 0, PPM, 0, 0, 0, at_us)
    deals = (node for node in score.nodes if hotkey in (score.submitter, node.provider) and is_self_deal(score, node))
    self_deal = 1 if any(deals) else 0
    state.standings[hotkey] = replace(
        held,
        score_count=held.score_count + 1,
        self_deal_count=held.self_deal_count + self_deal,
        changed_us=at_us,
    )


def _stand(state: ScoresState, hotkey: str, at_us: int) -> None:
    """Bring one standing up to date; a row whose numbers stay is not written again."""
    if CURRENT not in state.terms:
        return
    held = state.standings[hotkey]
    mass = credit_index.mass_of(state, hotkey, state.outcomes_of(hotkey), at_us)
    now = replace(held, supply=mass.supply, demand=mass.demand, keep_ppm=mass.keep_ppm, total=mass.total)
    if now != held:
        state.standings[hotkey] = replace(now, changed_us=at_us)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    ScoreRecorded: _score_recorded,
    ScoreRevised: _score_revised,
    AttemptEnded: _attempt_ended,
    AttemptCollecting: _attempt_collecting,
    JobSubmitted: _job_submitted,
    JobEnded: _job_ended,
    PolicyAdopted: _policy_adopted,
    WeightsSnapshot: _snapshot,
}
