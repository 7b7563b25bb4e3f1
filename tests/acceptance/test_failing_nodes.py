"""Nodes and jobs that fail, seen from outside: over HTTP, on real hosts. Each failure has its own name, in time."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hypercluster.effects.ssh import generate_client_key
from hypercluster.sim.cluster import SimHost
from hypercluster.sim.processes import free_port
from tests.support.clusters import ClusterProcess, start_cluster
from tests.support.crash_rig import (
    Caller,
    ServerProcess,
    Work,
    job_over,
    job_runs,
    left_of,
    node_body,
    start_liar,
)

WRONG_DIGEST = """
    def rewrite(source):
        return source.replace('hashlib.sha256(nonce + start["rank"]', 'hashlib.sha256(b"x" + nonce + start["rank"]')
"""


@dataclass
class House:
    """A server, the key file that its hosts know, and honest hosts that nobody has registered yet."""

    server: ServerProcess
    key_file: Path
    directory: Path
    spare: list[SimHost]
    stack: ExitStack

    def started(self, cluster: ClusterProcess) -> ClusterProcess:
        """Have it ended with the house."""
        self.stack.callback(cluster.end)
        return cluster


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    directory = tmp_path_factory.mktemp("house")
    with ExitStack() as stack:
        server = ServerProcess(directory)
        stack.callback(server.stop)
        server.start()
        key_file = server.public_key(directory)
        honest = start_cluster(directory / "hosts", key_file, nodes=16)
        stack.callback(honest.end)
        yield House(server, key_file, directory, list(honest.hosts), stack)
        assert server.faults() == []


@dataclass
class Tenancy:
    """A provider's nodes under one lease of a miner. The first node has one GPU, all others two."""

    provider: Caller
    miner: Caller
    work: Work
    nodes: list[str]
    offer_id: str
    lease_id: str = ""
    began: float = field(default_factory=time.monotonic)

    def rent(self) -> None:
        self.lease_id = self.miner.post(f"/v1/offers/{self.offer_id}/rent", {"lifetime_hours": 1})["lease"]["id"]

    def submit(self, nnodes: int = 2, nproc: int = 1, timeout_s: int = 20, **given: object) -> str:
        spec = self.work.spec(nnodes, nproc, timeout_s, lease_id=self.lease_id, **given)
        self.began = time.monotonic()
        return str(self.miner.post("/v1/jobs", spec)["id"])

    def events(self, job_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.miner.get(f"/v1/events?job={job_id}&limit=100")["items"]
        return found

    def ended(self, job_id: str, within_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """The job and its only attempt, once nothing of it is left."""
        job = job_over(self.miner, job_id, within_s)
        (attempt,) = self.miner.items(f"/v1/jobs/{job_id}/attempts")
        assert left_of({(job_id, 1)}) == set()
        return job, attempt

    def next_job_runs(self, nnodes: int = 1, nproc: int = 2) -> None:
        """Whatever happened before, those who are well are free again."""
        job, attempt = self.ended(self.submit(nnodes, nproc), 15)
        assert job["status"] == "succeeded", (job, attempt)
        assert [rank["exit_code"] for rank in attempt["ranks"]] == [0] * (nnodes * nproc)


def tenancy(server: ServerProcess, directory: Path, bodies: list[dict[str, Any]], stack: ExitStack) -> Tenancy:
    provider, miner = (stack.enter_context(Caller(server.url)) for _ in range(2))
    provider.post("/v1/providers/register", {})
    nodes = [provider.post("/v1/nodes", body)["id"] for body in bodies]
    mode = "cluster" if len(nodes) > 1 else "single"
    body = {"node_ids": nodes, "mode": mode, "price_per_hour": 1, "max_lifetime_hours": 1}
    offer = provider.post("/v1/offers", body)["id"]
    rented = Tenancy(provider, miner, Work(directory / "work"), nodes, offer)
    rented.rent()
    return rented


def with_bad(house: House, tmp_path: Path, bad: dict[str, Any]) -> Tenancy:
    """A lease of one node that is bad (one GPU) and one that is well (two)."""
    return tenancy(house.server, tmp_path, [bad | {"gpu_count": 1}, node_body(house.spare.pop())], house.stack)


def both_well(house: House, tmp_path: Path) -> Tenancy:
    return with_bad(house, tmp_path, node_body(house.spare.pop()))


def some_key(path: Path) -> str:
    """The public key of nobody, as a host key is registered."""
    return " ".join(generate_client_key(path).split()[:2])


def check_story(events: list[dict[str, Any]], code: str, ran: bool) -> None:
    """The ledger tells the same: placed, released or not, ended with this code once, clean at last."""
    types = [event["type"] for event in events]
    assert types[:3] == ["job.submitted", "job.admitted", "attempt.placed"]
    assert types.count("attempt.running") == int(ran)
    assert types.count("attempt.ended") == types.count("attempt.cleaned") == types.count("job.ended") == 1
    ended = next(event["data"] for event in events if event["type"] == "attempt.ended")
    assert ended["failure_code"] == code
    assert next(event["data"] for event in events if event["type"] == "job.ended")["reason_code"] == code


def check_bad_node(rented: Tenancy, code: str, within_s: float, *, ran: bool = False, reachable: bool = False) -> None:
    """A job over both nodes ends with this code and names the bad one; the other is released and works."""
    job_id = rented.submit()
    job, attempt = rented.ended(job_id, within_s)
    assert time.monotonic() - rented.began < within_s
    assert (job["status"], job["failure_code"], attempt["failure_code"]) == ("failed", code, code)
    assert (attempt["fault"], attempt["failed_node_id"]) == ("provider", rented.nodes[0])
    assert attempt["unconfirmed_nodes"] == ([] if reachable else [rented.nodes[0]])
    assert (attempt["started_at"] is not None) is ran and (rented.work.ran() == []) is not ran
    check_story(rented.events(job_id), code, ran)
    rented.next_job_runs()


def test_a_rank_that_exits_1(house: House, tmp_path: Path) -> None:
    rented = both_well(house, tmp_path)
    job_id = rented.submit(SLEEP_S=0.2, EXIT=1, FAILING_RANK=1)
    job, attempt = rented.ended(job_id, 10)
    assert (job["status"], job["failure_code"]) == ("failed", "rank_failed")
    assert (attempt["fault"], attempt["failed_rank"], attempt["unconfirmed_nodes"]) == ("submitter", 1, [])
    assert attempt["ranks"][1]["exit_code"] == 1
    check_story(rented.events(job_id), "rank_failed", True)
    rented.next_job_runs()


def test_a_rank_that_hangs(house: House, tmp_path: Path) -> None:
    rented = both_well(house, tmp_path)
    job_id = rented.submit(timeout_s=1, SLEEP_S=60)
    job, attempt = rented.ended(job_id, 10)
    assert (job["status"], job["failure_code"], attempt["fault"]) == ("timeout", "timeout", "submitter")
    assert [rank["exit_code"] for rank in attempt["ranks"]] == [None, None]
    check_story(rented.events(job_id), "timeout", True)
    rented.next_job_runs()


def test_a_host_whose_ssh_server_dies_during_main(house: House, tmp_path: Path) -> None:
    doomed = house.started(start_cluster(tmp_path / "doomed", house.key_file))
    rented = with_bad(house, tmp_path, node_body(doomed.hosts[0]))
    job_id = rented.submit(SLEEP_S=60, timeout_s=60)
    job_runs(rented.miner, job_id, 10)
    doomed.kill()
    killed = time.monotonic()
    job, attempt = rented.ended(job_id, 15)
    assert time.monotonic() - killed < 15
    assert (job["status"], job["failure_code"]) == ("failed", "node_lost")
    assert (attempt["fault"], attempt["failed_node_id"]) == ("provider", rented.nodes[0])
    assert attempt["unconfirmed_nodes"] == [rented.nodes[0]]
    check_story(rented.events(job_id), "node_lost", True)
    rented.next_job_runs()


def test_an_endpoint_where_nobody_listens(house: House, tmp_path: Path) -> None:
    nobody = SimHost("", f"127.0.0.1:{free_port()}", "hyper", some_key(tmp_path / "host_key"), (0,))
    bad = node_body(nobody)
    check_bad_node(with_bad(house, tmp_path, bad), "node_unreachable", 8)


def test_a_host_key_that_is_not_the_pinned_one(house: House, tmp_path: Path) -> None:
    bad = node_body(house.spare.pop(), ssh_host_key=some_key(tmp_path / "host_key"))
    check_bad_node(with_bad(house, tmp_path, bad), "host_key_mismatch", 8)


def test_a_node_that_lies_in_the_preflight(house: House, tmp_path: Path) -> None:
    liar = house.started(start_liar(tmp_path / "liar", house.key_file, WRONG_DIGEST))
    rented = with_bad(house, tmp_path, node_body(liar.hosts[0]))
    check_bad_node(rented, "preflight_mismatch", 12, reachable=True)


def test_a_job_that_is_cancelled_while_it_runs(house: House, tmp_path: Path) -> None:
    rented = both_well(house, tmp_path)
    job_id = rented.submit(SLEEP_S=60, timeout_s=60)
    job_runs(rented.miner, job_id, 10)
    asked = time.monotonic()
    answer = rented.miner.post(f"/v1/jobs/{job_id}/cancel")
    assert answer["status"] == "cancelled"
    _, attempt = rented.ended(job_id, 8)
    assert time.monotonic() - asked < 8
    assert (attempt["status"], attempt["failure_code"], attempt["fault"]) == ("cancelled", "cancelled", "nobody")
    assert attempt["unconfirmed_nodes"] == []
    check_story(rented.events(job_id), "cancelled", True)
    rented.next_job_runs()


def test_a_lease_that_is_terminated_while_its_job_runs(house: House, tmp_path: Path) -> None:
    rented = both_well(house, tmp_path)
    job_id = rented.submit(SLEEP_S=60, timeout_s=60)
    job_runs(rented.miner, job_id, 10)
    asked = time.monotonic()
    rented.miner.post(f"/v1/leases/{rented.lease_id}/terminate")
    job, attempt = rented.ended(job_id, 8)
    assert time.monotonic() - asked < 8
    assert (job["status"], job["failure_code"], attempt["failure_code"]) == ("failed", "lease_ended", "lease_ended")
    assert (attempt["fault"], attempt["unconfirmed_nodes"]) == ("nobody", [])
    check_story(rented.events(job_id), "lease_ended", True)
    offer = {"node_ids": rented.nodes, "mode": "cluster", "price_per_hour": 1, "max_lifetime_hours": 1}
    rented.offer_id = rented.provider.post("/v1/offers", offer)["id"]
    rented.rent()
    rented.next_job_runs()


def test_production_connects_to_no_private_or_loopback_endpoint(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = ServerProcess(tmp_path, "production")
        stack.callback(server.stop)
        server.start()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        port = listener.getsockname()[1]
        endpoints = [f"127.0.0.1:{port}", f"localhost:{port}", "10.1.2.3", "[::1]:22", "169.254.169.254:80"]
        rents = []
        for number, endpoint in enumerate(endpoints):
            host = SimHost("", endpoint, "hyper", some_key(tmp_path / f"key-{number}"), (0,))
            rented = tenancy(server, tmp_path, [node_body(host, gpu_model="NVIDIA H100 80GB")], stack)
            rents.append((rented, rented.submit(1, 1)))
        for rented, job_id in rents:
            job, attempt = rented.ended(job_id, 15)
            assert (job["status"], job["failure_code"]) == ("failed", "endpoint_forbidden")
            assert (attempt["fault"], attempt["failed_node_id"]) == ("provider", rented.nodes[0])
            check_story(rented.events(job_id), "endpoint_forbidden", False)
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert server.faults() == []
