"""Deletes private values and rank outputs when the policy's time after the last state of their owner is over.

What the ledger says of them, commitments and digests, stays. Deleting again is no fault, so nothing is remembered.
"""

import asyncio
from collections.abc import Iterator

import structlog

from hypercluster.runtime.service import Service
from projections.folds.jobs import TERMINAL, Attempt

log = structlog.get_logger()

PASS_EVERY_S = 3_600.0


class Retention:
    """Remembers how far all owners were cleared, by the event that made them, so that a pass reads only newer rows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cleared = {"job": 0, "lease": 0}

    async def sweep(self) -> None:
        """One pass, then a long sleep."""
        before_us = self._service.now_us() - self._service.policy().private_retention_s * 1_000_000
        deleted = await asyncio.to_thread(self._clear, before_us)
        if deleted:
            log.info("private_values_deleted", owners=deleted)
        await self._service.sleep(PASS_EVERY_S)

    def _clear(self, before_us: int) -> int:
        return self._clear_table("job", before_us) + self._clear_table("lease", before_us)

    def _clear_table(self, table: str, before_us: int) -> int:
        deleted, every_one = 0, True
        for row in self._service.all_rows(table, {}, after=self._cleared[table]):
            record = row.record
            if not _is_over(table, record.status) or record.updated_us > before_us:
                every_one = False
                continue
            owner = record.job_id if table == "job" else record.lease_id
            deleted += self._service.store.private.delete_owner(f"{table}/{owner}")
            if table == "job":
                deleted += sum(self._service.store.blobs.delete(digest) for digest in self._outputs(owner))
            if every_one:
                self._cleared[table] = row.created
        return deleted

    def _outputs(self, job_id: str) -> Iterator[str]:
        for row in self._service.all_rows("attempt", {"job_id": job_id}):
            attempt: Attempt = row.record
            for rank in attempt.ranks:
                yield from (digest for digest in (rank.stdout, rank.stderr) if digest is not None)


def _is_over(table: str, status: str) -> bool:
    return status in TERMINAL if table == "job" else status != "active"
