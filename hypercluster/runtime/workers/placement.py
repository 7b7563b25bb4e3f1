"""Asks for a place for each waiting job whenever there may be room, and gives up those that waited too long."""

from hypercluster.domain.jobs.internal import GiveUpJob, PlaceJob
from hypercluster.runtime.service import Service

WAITING = ("admitted", "placing")
IDLE_S = 1.0


async def place_jobs(service: Service) -> None:
    """One pass over all waiting jobs, oldest first; then waits for the next event."""
    seen = service.head()  # what happens during the pass may make room for a job that it has been at
    limit_us = service.policy().capacity_wait_s * 1_000_000
    for status in WAITING:
        for row in service.all_rows("job", {"status": status}):
            job = row.record
            await service.report("job.place", PlaceJob(job_id=job.job_id), cause=service.head(), attempt=row.created)
            if service.now_us() - job.created_us > limit_us:
                await service.report("job.give_up", GiveUpJob(job_id=job.job_id), cause=job.submitted_pos)
    await service.wait_for_event(IDLE_S, seen)
