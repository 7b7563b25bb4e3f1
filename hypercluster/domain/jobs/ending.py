"""The end of a job, with what it takes along."""

from events.envelope import Event
from events.types.jobs import JobEnded
from hypercluster.domain.jobs.closing import end_attempt, end_jobs_of_lease, live_attempt
from hypercluster.domain.jobs.leases import is_active
from hypercluster.domain.market.ending import Ending, close_lease
from projections.fold import State
from projections.folds.jobs import TERMINAL, Job
from projections.folds.market import Lease

__all__ = ["end_attempt", "end_job", "end_jobs_of_lease", "live_attempt"]

TEARDOWN = "job_teardown"


def end_job(
    state: State,
    job: Job,
    *,
    status: str,
    reason_code: str,
    caused_by: int | None,
    at_us: int,
    lost_from_us: int | None = None,
) -> tuple[Event, ...]:
    """job.ended, and with teardown `terminate` the end of its lease and of the other jobs on it.

    at_us: the time of the decision, up to which the lease is billed. lost_from_us: since when the host had failed the
    job, where an attempt that ended in the same append says so. A job that has ended already: no events.
    """
    if job.status in TERMINAL:
        return ()
    ended = JobEnded(job_id=job.job_id, status=status, reason_code=reason_code, caused_by=caused_by)
    lease = _to_tear_down(state, job, at_us)
    if lease is None:
        return (ended,)
    fault = "none" if lost_from_us is None else "provider"
    ending = Ending("terminated", TEARDOWN, fault=fault, caused_by=caused_by, lost_from_us=lost_from_us)
    closed = close_lease(state, lease, at_us, ending)
    # The lease closes its jobs; this one is being closed already.
    return ended, *(event for event in closed if getattr(event, "job_id", None) != job.job_id)


def _to_tear_down(state: State, job: Job, at_us: int) -> Lease | None:
    """The lease that ends with the job. One whose time is over expires by itself."""
    lease_id = job.spec.lease_id
    if job.spec.teardown != "terminate" or lease_id is None:
        return None
    lease = state.market.leases.get(lease_id)
    return lease if is_active(lease, at_us) else None
