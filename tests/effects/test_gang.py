"""Gangs on real loopback hosts: SSH, sockets, processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hypercluster.domain.jobs.preflight import judge
from hypercluster.effects.gang import GangTrace, RunningFacts, clean_gang, run_gang
from hypercluster.effects.networks import Allowed
from hypercluster.effects.plan import tag_of
from hypercluster.effects.ssh import Ssh, generate_client_key
from tests.support.clusters import lab, plan_for, remains, run, start_cluster, target, wait_empty

SUM_OVER_SOCKETS = """
    import json, os, socket, sys, time
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        server = socket.create_server(at)
        peers = [server.accept()[0] for _ in range(world - 1)]
        total = sum(int(peer.makefile().readline()) for peer in peers)
        for peer in peers:
            peer.sendall(b"%d\\n" % total)
    else:
        for _ in range(100):
            try:
                link = socket.create_connection(at)
                break
            except OSError:
                time.sleep(0.05)
        link.sendall(b"%d\\n" % 10 ** rank)
        total = int(link.makefile().readline())
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "CUDA_VISIBLE_DEVICES"]
    names += ["HYPER_JOB_ID", "HYPER_ATTEMPT", "TORCHELASTIC_RUN_ID", "SECRET"]
    print(json.dumps({"total": total, **{name: os.environ[name] for name in names}}))
    print("warned", file=sys.stderr)
"""


def test_two_nodes_with_two_ranks_each_compute_over_sockets(tmp_path: Path) -> None:
    seen: list[object] = []

    async def play() -> None:
        async with lab(tmp_path) as it:
            plan = plan_for(it.targets, SUM_OVER_SOCKETS, env={"SECRET": "s3", "RANK": "77"})

            async def running(facts: RunningFacts) -> bool:
                seen.append(facts)
                return True

            async def collecting() -> None:
                seen.append("collecting")

            outcome = await run_gang(
                plan, ssh=it.ssh, on_running=running, on_collecting=collecting, stop=asyncio.Event()
            )
            assert (outcome.phase, outcome.failure_code) == ("collect", None), outcome
            told = [json.loads(rank.stdout) for rank in outcome.ranks]
            assert [entry["total"] for entry in told] == [1110] * 4
            assert [entry["RANK"] for entry in told] == ["0", "1", "2", "3"]
            assert [entry["LOCAL_RANK"] for entry in told] == ["0", "1", "0", "1"]
            assert [entry["NODE_RANK"] for entry in told] == ["0", "0", "1", "1"]
            assert told[3]["LOCAL_WORLD_SIZE"] == "2" and told[3]["CUDA_VISIBLE_DEVICES"] == "0,1"
            assert (told[0]["HYPER_JOB_ID"], told[0]["HYPER_ATTEMPT"], told[0]["SECRET"]) == ("job-1", "1", "s3")
            assert all(rank.exit_code == 0 and rank.stderr == b"warned\n" for rank in outcome.ranks)
            assert outcome.transcript is not None
            verdict = judge(outcome.transcript)
            facts = seen[0]
            assert isinstance(facts, RunningFacts) and facts.transcript == outcome.transcript
            assert (verdict.ok, verdict.transport, verdict.program) == (True, "eth", "ring-xor-1")
            assert facts.measured_bytes_per_s == verdict.measured_bytes_per_s > 0
            assert seen[1] == "collecting"
            assert remains(plan) == set()
            assert not any((it.home(index) / ".hypercluster" / tag_of(plan.marker)).exists() for index in (0, 1))

    asyncio.run(play())


def test_one_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    script = """
        import os, sys, time
        print("rank", os.environ["RANK"], flush=True)
        if os.environ["RANK"] == "2":
            time.sleep(0.3)
            sys.exit(7)
        time.sleep(60)
    """

    async def play() -> None:
        async with lab(tmp_path) as it:
            plan = plan_for(it.targets, script)
            began = time.monotonic()
            outcome = await run(plan, it.ssh)
            assert time.monotonic() - began < 8
            assert (outcome.phase, outcome.failure_code) == ("main", "rank_failed")
            assert (outcome.node_id, outcome.rank) == ("sim-1", 2)
            assert [rank.exit_code for rank in outcome.ranks] == [None, None, 7, None]
            assert [rank.stdout for rank in outcome.ranks] == [b"rank %d\n" % rank for rank in range(4)]
            assert remains(plan) == set()

    asyncio.run(play())


def test_a_rank_that_hangs_and_ignores_term_times_out(tmp_path: Path) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"

    async def play() -> None:
        async with lab(tmp_path, nodes=1) as it:
            plan = plan_for(it.targets, script, timeout_s=0.5, kill_grace_s=0.5)
            outcome = await run(plan, it.ssh)
            assert (outcome.phase, outcome.failure_code, outcome.rank) == ("main", "timeout", None)
            assert remains(plan) == set()

    asyncio.run(play())


def test_output_is_kept_exactly_up_to_the_cap_and_marked(tmp_path: Path) -> None:
    script = """
        import os, sys
        sys.stdout.buffer.write(bytes(range(256)) * 4096)
        sys.stderr.buffer.write(b"e" * 1000)
    """

    async def play() -> None:
        async with lab(tmp_path, nodes=1, gpus=1) as it:
            outcome = await run(plan_for(it.targets, script, output_cap_bytes=100_001), it.ssh)
            (rank,) = outcome.ranks
            assert outcome.failure_code is None
            assert rank.stdout == (bytes(range(256)) * 4096)[:100_001]
            assert (rank.stdout_bytes, rank.stderr, rank.truncated) == (1 << 20, b"e" * 1000, True)
            assert outcome.transcript is not None and judge(outcome.transcript).program == "digest-1"
            exact = await run(plan_for(it.targets, script, output_cap_bytes=1 << 20), it.ssh)
            assert exact.ranks[0].truncated is False and len(exact.ranks[0].stdout) == 1 << 20

    asyncio.run(play())


def test_an_entrypoint_that_cannot_start(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1, gpus=1) as it:
            outcome = await run(plan_for(it.targets, "", entrypoint=("no-such-program",)), it.ssh)
            assert (outcome.failure_code, outcome.ranks[0].exit_code) == ("rank_failed", 127)
            assert b"cannot start no-such-program" in outcome.ranks[0].stderr

    asyncio.run(play())


DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            {scrub}
            open("daemon.pid", "w").write(str(os.getpid()))
            os.close(1); os.close(2)
            time.sleep(120)
        os._exit(0)
    os.wait()
    while not os.path.exists("daemon.pid") or not open("daemon.pid").read():
        time.sleep(0.02)
    print(open("daemon.pid").read())
"""


@pytest.mark.parametrize(
    "scrub",
    [
        pytest.param("pass", id="marked"),
        pytest.param(
            "os.environ.get('AGAIN') or os.execve(sys.executable, [sys.executable, '-c', "
            '\'import os, time; open("daemon.pid", "w").write(str(os.getpid())); os.closerange(0, 9); '
            "time.sleep(120)'], {'AGAIN': '1'})",
            id="without the marker",
        ),
    ],
)
def test_a_daemon_of_a_rank_dies_with_it(tmp_path: Path, scrub: str) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1, gpus=1) as it:
            outcome = await run(plan_for(it.targets, DAEMON.replace("{scrub}", scrub)), it.ssh)
            assert outcome.failure_code is None, outcome
            daemon = int(outcome.ranks[0].stdout)
            with pytest.raises(ProcessLookupError):
                os.kill(daemon, 0)

    asyncio.run(play())


def test_stop_cancels_before_and_during_main(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path) as it:
            stop = asyncio.Event()
            released: list[bool] = []

            async def running(_: RunningFacts) -> bool:
                released.append(True)
                asyncio.get_running_loop().call_later(0.3, stop.set)
                return True

            async def collecting() -> None:
                raise AssertionError("a cancelled gang collects nothing")

            plan = plan_for(it.targets, "import time; time.sleep(60)")
            outcome = await run_gang(plan, ssh=it.ssh, on_running=running, on_collecting=collecting, stop=stop)
            assert (outcome.phase, outcome.failure_code, released) == ("main", "cancelled", [True])
            assert remains(plan) == set()
            again = await run_gang(plan, ssh=it.ssh, on_running=running, on_collecting=collecting, stop=stop)
            assert (again.phase, again.failure_code, released) == ("connect", "cancelled", [True])

    asyncio.run(play())


def test_nothing_is_released_when_the_ledger_says_no(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path) as it:
            proof = tmp_path / "released"
            plan = plan_for(it.targets, f"open({str(proof)!r}, 'a').write('x')")
            outcome = await run(plan, it.ssh, allow=False)
            assert (outcome.phase, outcome.failure_code, outcome.ranks) == ("preflight", "cancelled", ())
            assert outcome.transcript is not None and judge(outcome.transcript).ok
            assert remains(plan) == set() and not proof.exists()

    asyncio.run(play())


def test_a_host_that_dies_is_lost_and_the_other_is_cleaned(tmp_path: Path) -> None:
    async def play() -> None:
        key = tmp_path / "client_key"
        (tmp_path / "client_key.pub").write_text(generate_client_key(key))
        doomed = start_cluster(tmp_path / "a", tmp_path / "client_key.pub")
        other = start_cluster(tmp_path / "b", tmp_path / "client_key.pub")
        try:
            nodes = (target(other.hosts[0]), target(doomed.hosts[0]))
            nodes = (nodes[0], type(nodes[1])("doomed", *(getattr(nodes[1], f) for f in _FIELDS)))
            plan = plan_for(nodes, "import time; time.sleep(60)")
            ssh = Ssh(key, Allowed("sim"))
            loop = asyncio.get_running_loop()
            outcome = await run(plan, ssh, on_running=lambda: loop.call_later(0.3, doomed.process.kill))
            assert (outcome.phase, outcome.failure_code, outcome.node_id) == ("main", "node_lost", "doomed")
            assert wait_empty(plan, 5) == set()
            assert await clean_gang(plan, ssh=ssh, deadline_s=5) == ("doomed",)
        finally:
            doomed.kill()
            doomed.end()
            other.end()

    asyncio.run(play())


_FIELDS = ("endpoint", "user", "host_key", "gpus")

CLIENT = """
    import asyncio, sys
    from pathlib import Path
    from hypercluster.effects.networks import Allowed
    from hypercluster.effects.gang import NodeTarget
    from hypercluster.effects.ssh import Ssh
    from tests.support.clusters import plan_for, run
    key, marker, *hosts = sys.argv[1:]
    nodes = tuple(NodeTarget(*host.split("|"), (0, 1)) for host in hosts)
    plan = plan_for(nodes, "import time; time.sleep(120)", marker=marker, timeout_s=100)
    asyncio.run(run(plan, Ssh(Path(key), Allowed("sim")), on_running=lambda: print("running", flush=True)))
"""


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_outlives_a_control_plane_that_is_gone(tmp_path: Path, death: signal.Signals) -> None:
    """Killed: the connection drops. Stopped: it stays open, but the lease is not renewed any more."""
    key = tmp_path / "client_key"
    (tmp_path / "client_key.pub").write_text(generate_client_key(key))
    cluster = start_cluster(tmp_path / "hosts", tmp_path / "client_key.pub", nodes=2)
    nodes = tuple(target(host) for host in cluster.hosts)
    plan = plan_for(nodes, "")
    hosts = [f"{node.node_id}|{node.endpoint}|{node.user}|{node.host_key}" for node in nodes]
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CLIENT), str(key), plan.marker, *hosts], stdout=subprocess.PIPE
    )
    try:
        assert client.stdout is not None and client.stdout.readline() == b"running\n"
        time.sleep(0.3)
        assert remains(plan)
        client.send_signal(death)
        assert wait_empty(plan, plan.lease_stale_s + plan.kill_grace_s + 3) == set()
    finally:
        client.kill()
        client.communicate()
        cluster.end()


def test_cleaning_needs_only_marker_and_targets_and_may_be_repeated(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path) as it:
            plan = plan_for(it.targets, "")
            stranger = subprocess.Popen(["sleep", "60"], env={"HYPER_GANG": tag_of(plan.marker) + "0/0/rank-0"})
            left = subprocess.Popen(["sleep", "60"], env={"HYPER_GANG": tag_of(plan.marker) + "/0/rank-0"})
            scratch = it.home(1) / ".hypercluster" / tag_of(plan.marker)
            (scratch / "rank-2").mkdir(parents=True)
            trace = GangTrace(plan.marker, plan.nodes)
            for _ in range(2):
                assert await clean_gang(trace, ssh=it.ssh, deadline_s=8) == ()
            assert left.wait(1) == -signal.SIGTERM
            assert stranger.poll() is None and not scratch.exists()
            stranger.kill()
            stranger.wait()

    asyncio.run(play())


def test_secrets_are_in_no_argument_list(tmp_path: Path) -> None:
    secret = "swordfish-" + os.urandom(8).hex()
    found: list[bytes] = []

    def look() -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found.append(path.read_bytes())
            except OSError:
                continue

    async def play() -> None:
        async with lab(tmp_path, nodes=1) as it:
            loop = asyncio.get_running_loop()
            script = "import os, time; time.sleep(0.5); print(os.environ['TOKEN'])"
            plan = plan_for(it.targets, script, env={"TOKEN": secret})
            outcome = await run(plan, it.ssh, on_running=lambda: (look(), loop.call_later(0.25, look))[0])
            assert outcome.ranks[0].stdout.decode().strip() == secret
            assert sum(b"time.sleep(0.5)" in line for line in found) >= 2, "the ranks were there to be seen"
            assert not any(secret.encode() in line for line in found)
            assert secret not in repr(plan)

    asyncio.run(play())


def test_production_ends_at_the_container_runtime_after_connecting(tmp_path: Path) -> None:
    async def play() -> None:
        async with lab(tmp_path, nodes=1) as it:
            outcome = await run(plan_for(it.targets, "", profile="production"), it.ssh)
            assert (outcome.phase, outcome.failure_code) == ("connect", "container_runtime_missing")
            assert outcome.node_id == "sim-0"

    asyncio.run(play())
