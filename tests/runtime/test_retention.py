"""Private values and outputs go when their time is over; what is still needed stays."""

import pytest

from events.blobs import BlobStore
from events.hashing import commit_value
from events.private import PrivateStore, PrivateValue
from events.types.jobs import JobSpec, NodeRanks, RankResult
from hypercluster.domain.policy.release import POLICY_V1
from hypercluster.runtime.workers.retention import Retention
from projections.folds.jobs import Attempt, Job
from projections.state import Change
from projections.tables import ReadModels, ReadView

NOW_US = 1_790_000_000_000_000
OLD_US = NOW_US - (POLICY_V1.private_retention_s + 60) * 1_000_000
SALT = b"s" * 32


class Deployment:
    """The part of a service that the sweep looks at, on real files."""

    def __init__(self, directory):
        self.private, self.blobs = PrivateStore(directory / "private.sqlite3"), BlobStore(directory / "blobs")
        self.models = ReadModels(directory / "read-models.sqlite3", b"ledger")
        self.view, self.store = ReadView(self.models.path), self

    def all_rows(self, table, where, after=0):
        return iter(self.view.find(table, where, after=after, limit=500))

    def add(self, number: int, status: str, updated_us: int) -> tuple[str, str]:
        """A job with one private value and one rank output. Returns (commitment, digest)."""
        job_id, value = f"job{number}", f"secret{number}"
        commitment = commit_value(SALT, value)
        self.private.put([PrivateValue(commitment, f"job/{job_id}", "env.TOKEN", SALT, value)])
        digest = self.blobs.put(f"output {number}".encode(), private=True)
        spec = JobSpec(
            image_digest="i",
            entrypoint=("true",),
            world_size=1,
            nnodes=1,
            nproc_per_node=1,
            timeout_s=1,
            env={"T": "x"},
        )
        job = Job(job_id, "5miner", spec, status, OLD_US, updated_us, number)
        attempt = Attempt(
            job_id, 1, "5miner", None, (NodeRanks(node_id="n", gpus=(0,)),), "n", "p", status, OLD_US, number, OLD_US,
            ranks=(RankResult(rank=0, stdout=digest),),
        )  # fmt: skip
        rows = {("job", job_id): job, ("attempt", f"{job_id}/1"): attempt}
        self.models.apply({key: Change(row, number, number, False) for key, row in rows.items()}, [], number)
        return commitment, digest


@pytest.fixture
def deployment(tmp_path):
    found = Deployment(tmp_path)
    yield found
    found.models.close()
    found.private.close()


def test_what_is_over_and_old_is_deleted(deployment):
    old = deployment.add(1, "failed", OLD_US)
    running = deployment.add(2, "running", OLD_US)
    fresh = deployment.add(3, "succeeded", NOW_US)
    old_too = deployment.add(4, "cancelled", OLD_US)
    sweep = Retention(deployment)
    before_us = NOW_US - POLICY_V1.private_retention_s * 1_000_000
    assert sweep._clear(before_us) == 4
    for commitment, digest in (old, old_too):
        assert deployment.private.get(commitment) is None
        assert not deployment.blobs.has(digest)
    for commitment, digest in (running, fresh):
        assert deployment.private.get(commitment) is not None
        assert deployment.blobs.has(digest)
    assert sweep._clear(before_us) == 0
    assert sweep._clear(NOW_US) == 2
