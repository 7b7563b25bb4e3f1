"""Ends leases at their hard lifetime, on time, and takes nodes offline that were not seen."""

import asyncio

from hypercluster.domain.market.internal import ExpireLease
from hypercluster.domain.nodes.internal import ReclaimNode
from hypercluster.runtime.service import Service

IDLE_S = 1.0
RECLAIM_EVERY_S = 5.0  # a fraction of any sensible liveness window; each pass reads all healthy nodes


async def expire_leases(service: Service) -> None:
    """One pass: report every lease that is over, then sleep until the next end, or until something happened."""
    now, next_us = service.now_us(), None
    for row in service.active_leases():
        if row.record.ends_at_us <= now:
            body = ExpireLease(lease_id=row.record.lease_id)
            await service.report("lease.expire", body, cause=row.record.started_pos)
        elif next_us is None or row.record.ends_at_us < next_us:
            next_us = row.record.ends_at_us
    wait_s = IDLE_S if next_us is None else max(0.0, min(IDLE_S, (next_us - service.now_us()) / 1_000_000))
    await service.wait_for_event(wait_s)


async def reclaim_nodes(service: Service) -> None:
    """One pass: report healthy nodes whose last sign of life is older than one and a half liveness windows."""
    limit_us = service.policy().liveness_window_s * 1_500_000
    for row in service.all_rows("node", {"status": "healthy"}):
        if service.now_us() - row.record.last_seen_us > limit_us:
            await service.report("node.reclaim", ReclaimNode(node_id=row.record.node_id), cause=row.pos)
    await asyncio.sleep(RECLAIM_EVERY_S)
