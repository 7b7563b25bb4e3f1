"""The loopback cluster as a process of its own, and what is left of it afterwards."""

import asyncio
import signal
import stat
import time
from pathlib import Path

import pytest

from hypercluster.effects.networks import Allowed, NodeFailure
from hypercluster.effects.remote import processes
from hypercluster.effects.ssh import Session, Ssh, generate_client_key
from hypercluster.sim.cluster import HOST_VARIABLE, SimHost
from tests.support.clusters import ClusterProcess, lab, start_cluster


def started(directory: Path, nodes: int = 2) -> tuple[ClusterProcess, Ssh]:
    (directory / "key.pub").write_text(generate_client_key(directory / "key"))
    cluster = start_cluster(directory / "hosts", directory / "key.pub", nodes=nodes)
    return cluster, Ssh(directory / "key", Allowed("sim"))


async def connect(ssh: Ssh, host: SimHost) -> Session:
    return await ssh.connect(host.node_id, host.endpoint, host.user, host.host_key)


def of_host(directory: Path, index: int) -> set[int]:
    return processes.carrying(f"{HOST_VARIABLE}={directory / 'hosts' / f'host-{index}'}")


def test_hosts_have_addresses_keys_and_homes_of_their_own(tmp_path: Path) -> None:
    cluster, ssh = started(tmp_path)

    async def play() -> None:
        assert [host.node_id for host in cluster.hosts] == ["sim-0", "sim-1"]
        assert len({host.endpoint for host in cluster.hosts}) == len({host.host_key for host in cluster.hosts}) == 2
        assert all(host.gpus == (0, 1) for host in cluster.hosts)
        homes = set()
        for host in cluster.hosts:
            session = await connect(ssh, host)
            status, output = await session.run(["sh", "-c", "pwd; echo $HOME; python3 -c 'print(7)'"], 10)
            where, home, seven = output.decode().split()
            assert (status, where, seven) == (0, home, "7")
            homes.add(home)
            session.abort()
        assert homes == {str(tmp_path / "hosts" / f"host-{index}" / "home") for index in (0, 1)}

    try:
        asyncio.run(play())
    finally:
        cluster.end()
    assert cluster.process.returncode == 0
    assert stat.S_IMODE((tmp_path / "hosts" / "host-0" / "host_key").stat().st_mode) == 0o600


@pytest.mark.parametrize("way", ["TERM", "end of input"])
def test_ending_the_cluster_ends_what_runs_there(tmp_path: Path, way: str) -> None:
    cluster, ssh = started(tmp_path, nodes=1)

    async def play() -> None:
        session = await connect(ssh, cluster.hosts[0])
        stubborn = "trap '' TERM HUP; setsid sleep 100 & sleep 100"
        running = asyncio.create_task(session.run(["sh", "-c", stubborn], 60))
        limit = time.monotonic() + 5
        while len(of_host(tmp_path, 0)) < 2 and time.monotonic() < limit:
            await asyncio.sleep(0.05)
        assert len(of_host(tmp_path, 0)) >= 2
        if way == "TERM":
            cluster.process.send_signal(signal.SIGTERM)
        else:
            cluster.process.stdin.close()  # type: ignore[union-attr]
        with pytest.raises(NodeFailure):
            await running
        session.abort()

    try:
        asyncio.run(play())
    finally:
        cluster.end()
    assert cluster.process.returncode == 0
    assert of_host(tmp_path, 0) == set()


def test_the_host_key_stays_when_the_cluster_starts_again(tmp_path: Path) -> None:
    first, ssh = started(tmp_path, nodes=1)
    first.end()
    second = start_cluster(tmp_path / "hosts", tmp_path / "key.pub")
    try:
        assert second.hosts[0].host_key == first.hosts[0].host_key
        asyncio.run(connect_and_leave(ssh, second.hosts[0]))
    finally:
        second.end()


async def connect_and_leave(ssh: Ssh, host: SimHost) -> None:
    (await connect(ssh, host)).abort()


def test_a_host_runs_commands_and_nothing_else(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1) as it:
            session = await connect(it.ssh, it.hosts[0])
            refused = session._connection
            with pytest.raises(Exception, match=r"(?i)failed|denied|refused|closed"):
                await refused.start_sftp_client()
            with pytest.raises(Exception, match=r"(?i)not permitted|failed|denied|refused"):
                await refused.open_connection("127.0.0.1", 1)
            session.abort()

    asyncio.run(play())
