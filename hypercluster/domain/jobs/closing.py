"""How attempts and jobs are closed when what they stand on is gone. Knows nothing of leases: those know it."""

from events.envelope import Event
from events.types.jobs import AttemptEnded, JobEnded
from hypercluster.domain.jobs import faults
from projections.fold import State
from projections.folds.jobs import TERMINAL, Attempt, Job, attempt_key

LEASE_ENDED = "lease_ended"


def live_attempt(state: State, job: Job) -> Attempt | None:
    """The attempt of this job that has not ended, if any."""
    attempt = state.jobs.attempts.get(attempt_key(job.job_id, job.attempts))
    return attempt if attempt is not None and attempt.ended_us is None else None


def end_attempt(attempt: Attempt, failure_code: str, *, fault: str, caused_by: int | None) -> AttemptEnded:
    """The end of an attempt that something outside the gang ended."""
    return AttemptEnded(
        job_id=attempt.job_id,
        attempt_no=attempt.attempt_no,
        outcome=faults.outcome_of(failure_code),
        fault=fault,
        failure_code=failure_code,
        caused_by=caused_by,
    )


def end_jobs_of_lease(
    state: State,
    lease_id: str,
    *,
    reason_code: str = LEASE_ENDED,
    caused_by: int | None = None,
    fault: str = faults.NOBODY,
) -> tuple[Event, ...]:
    """Close every live job of a lease that ends: its attempt with `lease_ended`, itself as failed for `reason_code`.

    A job whose attempt is over and waits for its score does not need the lease any more and is left to the score.
    """
    events: list[Event] = []
    for job_id in state.jobs.live_by_lease.get(lease_id, ()):
        job = state.jobs.jobs[job_id]
        if job.status in TERMINAL or job.status == "scoring":
            continue
        attempt = live_attempt(state, job)
        if attempt is not None:
            events.append(end_attempt(attempt, LEASE_ENDED, fault=fault, caused_by=caused_by))
        events.append(JobEnded(job_id=job_id, status="failed", reason_code=reason_code, caused_by=caused_by))
    return tuple(events)
