"""Asks for a weight snapshot at each epoch edge and whenever the weights may have changed."""

from hypercluster.domain.weights.internal import TakeSnapshot
from hypercluster.runtime.service import Service


async def take_snapshots(service: Service) -> None:
    """One pass: ask for the snapshot of this epoch, then wait for the shortest interval between two."""
    epoch = service.epoch()
    await service.report("weights.snapshot", TakeSnapshot(epoch=epoch), cause=service.head(), attempt=epoch)
    await service.sleep(service.policy().snapshot_min_interval_s)
