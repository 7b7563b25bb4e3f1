"""Where a job waits, gets its place, or gives up.

Two budgets are shared by all submitters: the sum of world sizes and the number of large jobs. Whoever waits for one
stands in a line, oldest first, so that small jobs cannot starve a large one. A job whose own nodes have no room is
not in the line and holds nobody up.
"""

from collections.abc import Callable
from typing import cast

from events.envelope import Event
from events.types.jobs import AttemptPlaced, JobWaiting
from events.types.policy import Policy
from hypercluster.domain.jobs import placement
from hypercluster.domain.jobs.closing import LEASE_ENDED
from hypercluster.domain.jobs.ending import end_job
from hypercluster.domain.jobs.internal import GiveUpJob, PlaceJob
from hypercluster.domain.jobs.leases import inventory, is_active, request_of
from hypercluster.domain.kernel import US_PER_S, Accepted, Command, Context, Decision, Refused
from projections.fold import State
from projections.folds.jobs import TERMINAL, Job, attempt_key

NO_CAPACITY = "no_capacity"

WAITING = frozenset({"submitted", "admitted", "placing"})


def _waiting_job(state: State, job_id: str) -> Job | Decision:
    """The job if it waits for a place, else the answer to whoever thought so."""
    job = state.jobs.jobs.get(job_id)
    if job is None:
        return Refused("job_not_found", "no such job")
    if job.status in TERMINAL:
        return Refused("already_terminal", f"the job has ended: {job.status}")
    return job if job.status in WAITING else Accepted((), subject=job.job_id)


def place(state: State, command: Command, context: Context) -> Decision:
    """A place for the job if there is one now, else why not. Asked again and again, it says so only once."""
    job = _waiting_job(state, cast(PlaceJob, command.body).job_id)
    if not isinstance(job, Job):
        return job
    if job.spec.lease_id is not None and not is_active(state.market.leases.get(job.spec.lease_id), context.at_us):
        events = end_job(
            state, job, status="failed", reason_code=LEASE_ENDED, caused_by=command.cause, at_us=context.at_us
        )
        return Accepted(events, subject=job.job_id)
    return Accepted(_place(state, job, context.at_us), subject=job.job_id)


def _place(state: State, job: Job, at_us: int) -> tuple[Event, ...]:
    record = state.policy.policy_at(at_us)
    planned = placement.plan(inventory(state, job.spec), request_of(job.spec))
    if isinstance(planned, placement.Rejected):
        return _wait(job, planned.reason_code, planned.fitting, job.spec.nnodes)
    over = _over_budget(state, job, record.policy)
    if over is not None:
        return _wait(job, *over)
    placed = AttemptPlaced(
        job_id=job.job_id,
        attempt_no=job.attempts + 1,
        lease_id=job.spec.lease_id,
        nodes=planned.nodes,
        master_node=planned.master_node,
        deadline_us=at_us + record.policy.gang_timeout_s * US_PER_S,
        policy_digest=record.digest,
    )
    return (placed,)


def _over_budget(state: State, job: Job, policy: Policy) -> tuple[str, int, int] | None:
    """The shared budget that is in the way: reason, what is left of it, what the job needs."""
    jobs = state.jobs
    ahead = sum(pos < job.submitted_pos for job_id, pos in jobs.line.items() if job_id != job.job_id)
    if ahead:
        # The number of those ahead changes all the time: it is stated once, when the job joins the line.
        return "queue_position", job.waiting_have if job.waiting_code == "queue_position" else ahead, 0
    size, large = job.spec.world_size, policy.large_job_world_size
    busy_large = sum(busy >= large for busy in jobs.busy.values())
    if size >= large and busy_large >= policy.concurrent_large_jobs_max:
        return "large_jobs_full", max(0, policy.concurrent_large_jobs_max - busy_large), 1
    left = policy.concurrent_world_size_max - sum(jobs.busy.values())
    if size > left:
        return "world_budget_full", max(0, left), size
    return None


def _wait(job: Job, reason_code: str, have: int, need: int) -> tuple[Event, ...]:
    if job.status == "placing" and (job.waiting_code, job.waiting_have, job.waiting_need) == (reason_code, have, need):
        return ()
    return (JobWaiting(job_id=job.job_id, reason_code=reason_code, have=have, need=need),)


def give_up(state: State, command: Command, context: Context) -> Decision:
    """End a job that found no place for capacity_wait_s since it was submitted, or since its last attempt ended."""
    job = _waiting_job(state, cast(GiveUpJob, command.body).job_id)
    if not isinstance(job, Job):
        return job
    wait_us = state.policy.policy_at(context.at_us).policy.capacity_wait_s * US_PER_S
    if context.at_us < _waits_since_us(state, job) + wait_us:
        return Refused("not_due", "the job has not waited for capacity_wait_s")
    events = end_job(state, job, status="failed", reason_code=NO_CAPACITY, caused_by=command.cause, at_us=context.at_us)
    return Accepted(events, subject=job.job_id)


def _waits_since_us(state: State, job: Job) -> int:
    last = state.jobs.attempts.get(attempt_key(job.job_id, job.attempts))
    return job.created_us if last is None or last.ended_us is None else last.ended_us


DECIDERS: dict[str, Callable[[State, Command, Context], Decision]] = {"job.place": place, "job.give_up": give_up}
