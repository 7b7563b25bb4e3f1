"""Scoring an attempt: read top to bottom, the rules from an ended attempt to its score event."""

from collections.abc import Callable

from events.types.policy import Policy
from events.types.scores import NodeValue, Score, ScoreRecorded
from hypercluster.domain.jobs import faults
from hypercluster.domain.jobs.ending import end_job
from hypercluster.domain.jobs.internal import ScoreAttempt
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Refused
from hypercluster.domain.scores import claims
from hypercluster.domain.scores.factors import UNVERIFIED, Factors, factors_of, node_values
from projections.credit import OWNER_UNKNOWN, SELF_DEAL
from projections.fold import State
from projections.folds.jobs import Attempt, Job, attempt_key
from projections.folds.scores import MainEnd

RULE = "composite-1"
SUCCEEDED = "succeeded"

type Decider = Callable[[State, Command, Context], Decision]


def score_attempt(state: State, command: Command, context: Context) -> Decision:
    """Score an attempt that has ended and end its job. Scored already: nothing to do."""
    body = command.body
    if not isinstance(body, ScoreAttempt):
        raise TypeError(f"{command.kind} with a body of {type(body).__name__}")
    key = attempt_key(body.job_id, body.attempt_no)
    attempt = state.jobs.attempts.get(key)
    if attempt is None:
        return Refused("attempt_not_found", "no such attempt")
    scored = state.scores.attempts.get(key)
    if scored is not None:
        return Accepted((), subject=key, seq=scored.pos)
    if attempt.ended_pos is None:
        return Refused("attempt_not_scorable", f"attempt {key} has not ended")
    if attempt.status == "cancelled" or not faults.is_scored(attempt.failure_code):
        return Refused("attempt_not_scorable", f"attempts that end with {attempt.failure_code} are not scored")
    policy = state.policy.policy_by_digest(attempt.policy_digest)
    if policy is None:
        return Refused("attempt_not_scorable", f"the policy of attempt {key} is not in the ledger")
    job = state.jobs.jobs[attempt.job_id]
    score = score_of(state, job, attempt, policy.policy)
    ended = end_job(
        state,
        job,
        status=attempt.status,
        reason_code=attempt.failure_code or SUCCEEDED,
        caused_by=attempt.ended_pos,
        at_us=context.at_us,
    )
    return Accepted((ScoreRecorded(score=score), *ended), subject=key, created=True)


def score_of(state: State, job: Job, attempt: Attempt, policy: Policy) -> Score:
    """The score of an ended attempt. policy: that of its start."""
    factors = factors_of(job, attempt, policy)
    nodes = node_values(state, attempt, policy, factors.composite_ppm)
    providers = [node.provider for node in nodes]
    posted = claims.claims_on(state, attempt, providers)
    void = claims.voids(attempt.submitter, providers, posted)
    main_end = _main_end(state, attempt)
    started_us = attempt.placed_us if attempt.started_us is None else attempt.started_us
    ended_us = _ended_us(attempt) if main_end is None else main_end.at_us
    numbers = (attempt.placed_pos, attempt.started_pos, main_end.pos if main_end else None, attempt.ended_pos)
    return Score(
        job_id=attempt.job_id,
        attempt_no=attempt.attempt_no,
        submitter=attempt.submitter,
        rule=RULE,
        policy_digest=attempt.policy_digest,
        correctness=factors.correctness,
        efficiency_ppm=factors.efficiency_ppm,
        fabric_gate=factors.fabric_gate,
        tee_bonus_ppm=factors.tee_bonus_ppm,
        composite_ppm=factors.composite_ppm,
        codes=_codes(factors, nodes, policy),
        program=attempt.program,
        hardware_class=UNVERIFIED,
        fabric=attempt.transport,
        measured_bytes_per_s=attempt.measured_bytes_per_s,
        expected_bytes_per_s=factors.expected_bytes_per_s,
        started_us=started_us,
        ended_us=ended_us,
        nodes=nodes,
        inputs=(*(number for number in numbers if number is not None), *(claim.pos for claim in posted)),
        demand_void=void.demand,
        supply_void=void.supply,
    )


def _main_end(state: State, attempt: Attempt) -> MainEnd | None:
    """When all ranks had ended by themselves. Collecting outputs takes time too, and earns nothing."""
    found = state.scores.main_ends.get(attempt.job_id)
    return found if found is not None and found.attempt_no == attempt.attempt_no else None


def _ended_us(attempt: Attempt) -> int:
    return attempt.placed_us if attempt.ended_us is None else attempt.ended_us


def _codes(factors: Factors, nodes: tuple[NodeValue, ...], policy: Policy) -> tuple[str, ...]:
    """The factors' codes and, for the reader, those of relations that cost credit under the policy of the start."""
    costly = {SELF_DEAL, OWNER_UNKNOWN} if policy.credit_requires_known_owner else {SELF_DEAL}
    return tuple(sorted({*factors.codes, *costly.intersection(node.relation for node in nodes)}))


DECIDERS: dict[str, Decider] = {"attempt.score": score_attempt}
