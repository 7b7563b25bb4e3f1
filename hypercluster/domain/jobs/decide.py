"""Jobs: submitted and cancelled by hotkeys. Placement, attempts and results have their own modules."""

from collections.abc import Callable
from typing import cast

from events.types.jobs import JobAdmitted, JobSubmitted
from hypercluster.domain.jobs import attempts, placing, results
from hypercluster.domain.jobs.commands import SubmitJob
from hypercluster.domain.jobs.ending import end_attempt, end_job, live_attempt
from hypercluster.domain.jobs.faults import NOBODY
from hypercluster.domain.jobs.gates import build_spec
from hypercluster.domain.jobs.leases import is_sim, lease_refuses, named_lease
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Ids, Refused
from projections.fold import State
from projections.folds.jobs import TERMINAL

# Ending a lease closes its jobs in one append, so that their number must have a bound.
LIVE_JOBS_PER_SUBMITTER_MAX = 256


def submit(state: State, command: Command, context: Context) -> Decision:
    """A new job: static gates, then those of the lease it names."""
    body = cast(SubmitJob, command.body)
    policy = state.policy.policy_at(context.at_us).policy
    lease = named_lease(state, body)
    lease_id = None if lease is None or isinstance(lease, Refused) else lease.lease_id
    spec = build_spec(body, policy, sim=is_sim(state), lease_id=lease_id)
    if isinstance(spec, Refused):
        return spec
    if isinstance(lease, Refused):
        return lease
    if lease is not None:
        refused = lease_refuses(state, lease, spec, command.actor, context.at_us)
        if refused is not None:
            return refused
    if state.jobs.live_by_submitter.get(command.actor, 0) >= LIVE_JOBS_PER_SUBMITTER_MAX:
        return Refused("too_many_jobs", f"at most {LIVE_JOBS_PER_SUBMITTER_MAX} jobs of one hotkey at once")
    job_id = Ids(state.ledger.info["ledger"].seed, command).new("job")
    submitted = JobSubmitted(
        job_id=job_id, submitter=command.actor, spec=spec, client_request_id=body.client_request_id
    )
    return Accepted((submitted, JobAdmitted(job_id=job_id)), subject=job_id, created=True)


def cancel(state: State, command: Command, context: Context) -> Decision:
    """Stop a job whose work is not done. It wins over whatever a worker reports later."""
    job = state.jobs.jobs.get(command.path["job_id"])
    if job is None:
        return Refused("job_not_found", "no such job")
    if job.submitter != command.actor:
        return Refused("forbidden", "only the submitter may cancel a job")
    if job.status in TERMINAL:
        return Refused("already_terminal", f"the job has ended: {job.status}", seq=state.jobs.ended_jobs[job.job_id])
    if job.status == "scoring":  # else a submitter could take a score away from the provider who did the work
        return Refused("already_terminal", "the work is done; the job waits for its score")
    attempt = live_attempt(state, job)
    ended = () if attempt is None else (end_attempt(attempt, "cancelled", fault=NOBODY, caused_by=None),)
    closing = end_job(state, job, status="cancelled", reason_code="cancelled", caused_by=None, at_us=context.at_us)
    return Accepted((*ended, *closing), subject=job.job_id)


DECIDERS: dict[str, Callable[[State, Command, Context], Decision]] = {
    "job.submit": submit,
    "job.cancel": cancel,
    **placing.DECIDERS,
    **attempts.DECIDERS,
    **results.DECIDERS,
}
