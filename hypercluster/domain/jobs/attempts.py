"""What happens to an attempt once it is placed. Workers report facts; what they mean is decided here."""

import re
from collections.abc import Callable
from typing import cast

from events.envelope import Event
from events.types.jobs import (
    AttemptCleaned,
    AttemptCollecting,
    AttemptEnded,
    AttemptRunning,
    JobWaiting,
    RankResult,
)
from events.types.policy import Policy
from hypercluster.domain.jobs import faults
from hypercluster.domain.jobs.closing import LEASE_ENDED
from hypercluster.domain.jobs.ending import end_job
from hypercluster.domain.jobs.internal import (
    AttemptIsClean,
    AttemptIsCollecting,
    AttemptIsOver,
    AttemptIsRunning,
    RankReport,
)
from hypercluster.domain.jobs.leases import is_active
from hypercluster.domain.kernel import US_PER_S, Accepted, Command, Context, Decision, Refused
from projections.fold import State
from projections.folds.jobs import Attempt, Job, attempt_key

CONTROL_PLANE_LOST = "control_plane_lost"
GANG_TIMEOUT = "gang_timeout"

_CODE = re.compile(r"[a-z0-9_]{1,64}")


def run(state: State, command: Command, context: Context) -> Decision:
    """Preflight is through: may the entrypoint be released? Only while attempt, lease and deadline hold."""
    body = cast(AttemptIsRunning, command.body)
    attempt = _open_attempt(state, body.job_id, body.attempt_no)
    if isinstance(attempt, Refused):
        return attempt
    key = attempt_key(body.job_id, body.attempt_no)
    if attempt.status != "provisioning":
        return Accepted((), subject=key, seq=attempt.started_pos)
    at_us = context.at_us
    if at_us > attempt.deadline_us:
        return Refused("attempt_over", "preflight was through after its deadline")
    lease = None if attempt.lease_id is None else state.market.leases.get(attempt.lease_id)
    if attempt.lease_id is not None and not is_active(lease, at_us):
        return Refused("attempt_over", "the lease has ended")
    deadline_us = at_us + state.jobs.jobs[body.job_id].spec.timeout_s * US_PER_S
    running = AttemptRunning(
        job_id=body.job_id,
        attempt_no=body.attempt_no,
        program=body.program,
        transport=body.transport,
        measured_bytes_per_s=body.measured_bytes_per_s,
        transcript=body.transcript,
        deadline_us=deadline_us if lease is None else min(deadline_us, lease.ends_at_us),
    )
    return Accepted((running,), subject=key)


def collect(state: State, command: Command, context: Context) -> Decision:
    """Every rank has ended; outputs are on their way."""
    body = cast(AttemptIsCollecting, command.body)
    attempt = _open_attempt(state, body.job_id, body.attempt_no)
    if isinstance(attempt, Refused):
        return attempt
    key = attempt_key(body.job_id, body.attempt_no)
    if attempt.status == "collecting":
        return Accepted((), subject=key)
    if attempt.status != "running":
        return Refused("attempt_not_running", "the entrypoint was not released")
    return Accepted((AttemptCollecting(job_id=body.job_id, attempt_no=body.attempt_no),), subject=key)


def end(state: State, command: Command, context: Context) -> Decision:
    """The gang is over. Success and what must be scored wait for the score; a lost one may be tried again."""
    body = cast(AttemptIsOver, command.body)
    attempt = _open_attempt(state, body.job_id, body.attempt_no)
    if isinstance(attempt, Refused):
        return attempt
    job = state.jobs.jobs[body.job_id]
    code, rank = _meaning(state, job, attempt, body, context.at_us)
    events: list[Event] = [_ended(attempt, body, code, rank, command.cause)]
    if _may_retry(state, job, attempt, code, context.at_us):
        policy = _policy(state, attempt, context.at_us)
        waiting = JobWaiting(job_id=job.job_id, reason_code="retry", have=job.attempts, need=policy.max_attempts)
        events.append(waiting)
    elif code is not None and not faults.is_scored(code):
        events.extend(
            end_job(
                state,
                job,
                status=faults.outcome_of(code),
                reason_code=code,
                caused_by=command.cause,
                at_us=context.at_us,
                lost_from_us=attempt.placed_us if faults.fault_of(code) == faults.PROVIDER else None,
            )
        )
    return Accepted(tuple(events), subject=attempt_key(body.job_id, body.attempt_no))


def clean(state: State, command: Command, context: Context) -> Decision:
    """Nothing of the attempt is left on its nodes: its GPUs are free."""
    body = cast(AttemptIsClean, command.body)
    key = attempt_key(body.job_id, body.attempt_no)
    attempt = state.jobs.attempts.get(key)
    if attempt is None:
        return Refused("attempt_not_found", "no such attempt")
    if attempt.ended_us is None:
        return Refused("attempt_live", "an attempt is cleaned when it has ended")
    if attempt.cleaned:
        return Accepted((), subject=key)
    nodes = {ranks.node_id for ranks in attempt.nodes}
    unconfirmed = tuple(sorted(nodes.intersection(body.unconfirmed)))
    cleaned = AttemptCleaned(job_id=body.job_id, attempt_no=body.attempt_no, unconfirmed=unconfirmed)
    return Accepted((cleaned,), subject=key)


def _open_attempt(state: State, job_id: str, attempt_no: int) -> Attempt | Refused:
    if job_id not in state.jobs.jobs:
        return Refused("job_not_found", "no such job")
    attempt = state.jobs.attempts.get(attempt_key(job_id, attempt_no))
    if attempt is None:
        return Refused("attempt_not_found", "no such attempt")
    if attempt.ended_us is not None:
        return Refused("attempt_over", f"the attempt has ended: {attempt.status}", seq=attempt.ended_pos)
    return attempt


def _meaning(
    state: State, job: Job, attempt: Attempt, body: AttemptIsOver, at_us: int
) -> tuple[str | None, int | None]:
    """The failure code that the facts mean (None: success), and the first rank that failed.

    The worker's word is not taken where the ledger knows better: an attempt that was not released cannot have
    succeeded or used up its own time, and only a submitter cancels.
    """
    code = body.failure_code
    started = attempt.started_us is not None
    if code is None:
        return _success(job, body) if started else (CONTROL_PLANE_LOST, None)
    if code == "preflight_timeout" or (code == "timeout" and not started):
        return GANG_TIMEOUT, body.rank
    if code == "timeout" and _cut_short(job, attempt, at_us):
        return LEASE_ENDED, body.rank
    if code == "cancelled":
        return _stopped(state, attempt, at_us), None
    return (code if _CODE.fullmatch(code) else CONTROL_PLANE_LOST), body.rank


def _success(job: Job, body: AttemptIsOver) -> tuple[str | None, int | None]:
    """Success is an exit code 0 of every rank, by the reports themselves."""
    reports: dict[int, RankReport] = {report.rank: report for report in body.ranks}
    for rank in range(job.spec.world_size):
        report = reports.get(rank)
        if report is None or report.exit_code is None:
            return CONTROL_PLANE_LOST, rank
        if report.exit_code != 0:
            return "rank_failed", rank
    return None, None


def _cut_short(job: Job, attempt: Attempt, at_us: int) -> bool:
    """Whether the lease ended before the job had its own time."""
    own_us = (attempt.started_us or 0) + job.spec.timeout_s * US_PER_S
    return attempt.deadline_us < own_us and attempt.deadline_us <= at_us < own_us


def _stopped(state: State, attempt: Attempt, at_us: int) -> str:
    """Why the control plane stopped a gang that nobody cancelled."""
    if attempt.lease_id is not None and not is_active(state.market.leases.get(attempt.lease_id), at_us):
        return LEASE_ENDED
    if attempt.started_us is None and at_us > attempt.deadline_us:
        return GANG_TIMEOUT
    return CONTROL_PLANE_LOST


def _ended(
    attempt: Attempt, body: AttemptIsOver, code: str | None, rank: int | None, cause: int | None
) -> AttemptEnded:
    places = [ranks.node_id for ranks in attempt.nodes for _ in ranks.gpus]
    rank = rank if rank is not None and 0 <= rank < len(places) else None
    node_id = body.node_id if code is not None and body.node_id in places else None
    if node_id is None and rank is not None:
        node_id = places[rank]
    return AttemptEnded(
        job_id=attempt.job_id,
        attempt_no=attempt.attempt_no,
        outcome=faults.outcome_of(code),
        fault=faults.fault_of(code),
        failure_code=code,
        node_id=node_id,
        rank=rank,
        transcript=body.transcript,
        ranks=tuple(RankResult(**report.model_dump()) for report in body.ranks),
        caused_by=cause,
    )


def _may_retry(state: State, job: Job, attempt: Attempt, code: str | None, at_us: int) -> bool:
    """Only what was our own fault is tried again, a limited number of times within a limited time."""
    if code != CONTROL_PLANE_LOST:
        return False
    policy = _policy(state, attempt, at_us)
    return job.attempts < policy.max_attempts and at_us - job.created_us < policy.max_wall_s * US_PER_S


def _policy(state: State, attempt: Attempt, at_us: int) -> Policy:
    """An attempt keeps the policy of its start."""
    record = state.policy.policy_by_digest(attempt.policy_digest) or state.policy.policy_at(at_us)
    return record.policy


DECIDERS: dict[str, Callable[[State, Command, Context], Decision]] = {
    "attempt.run": run,
    "attempt.collect": collect,
    "attempt.end": end,
    "attempt.clean": clean,
}
