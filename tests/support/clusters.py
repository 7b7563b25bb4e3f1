"""Real loopback hosts for tests, and nodes that misbehave: a liar's python3 rewrites the programs that it is sent."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hypercluster.effects.gang import GangOutcome, GangPlan, NodeTarget, RunningFacts, run_gang
from hypercluster.effects.networks import Allowed
from hypercluster.effects.plan import tag_of
from hypercluster.effects.remote import processes
from hypercluster.effects.ssh import Ssh, generate_client_key
from hypercluster.sim.cluster import Cluster, Host, SimHost


def target(host: SimHost) -> NodeTarget:
    return NodeTarget(host.node_id, host.endpoint, host.user, host.host_key, host.gpus)


@dataclass
class Lab:
    """A running cluster, the client that may log in, and the directory with the hosts."""

    ssh: Ssh
    hosts: list[SimHost]
    directory: Path

    @property
    def targets(self) -> tuple[NodeTarget, ...]:
        return tuple(target(host) for host in self.hosts)

    def home(self, index: int) -> Path:
        return self.directory / f"host-{index}" / "home"


class LyingHost(Host):
    """Runs what `rewrite` (Python source: a function `rewrite(source: str) -> str`) makes of each program."""

    rewrite = ""

    def environment(self) -> dict[str, str]:
        env = super().environment()
        bin_dir = self.directory / "bin"
        bin_dir.mkdir(parents=True, exist_ok=True)
        fake = bin_dir / "python3"
        if not fake.exists():  # written once: a program may be starting from it while the next command comes
            fake.write_text(f"#!{sys.executable} -I\n" + self.rewrite + _FAKE, encoding="utf-8")
            fake.chmod(0o755)
        return {**env, "PATH": f"{bin_dir}:{env['PATH']}"}


_FAKE = textwrap.dedent(
    """
    import os, sys, types
    b = sys.stdin.buffer
    for _ in range(int(b.readline())):
        name, size = b.readline().split()
        module = types.ModuleType(name.decode())
        sys.modules[module.__name__] = module
        exec(compile(rewrite(b.read(int(size)).decode()), module.__name__, "exec"), module.__dict__)
    module.main()
    os._exit(0)
    """
)


@asynccontextmanager
async def lab(directory: Path, nodes: int = 2, gpus: int = 2, lies: dict[int, str] | None = None) -> AsyncIterator[Lab]:
    """A cluster in this process. lies: node index -> source of its `rewrite`."""
    public = generate_client_key(directory / "client_key")
    cluster = Cluster(directory, nodes, gpus, public)
    for index, source in (lies or {}).items():
        liar = LyingHost(directory / f"host-{index}", index, gpus, public)
        liar.rewrite = textwrap.dedent(source)
        cluster._hosts[index] = liar
    await cluster.start()
    try:
        yield Lab(Ssh(directory / "client_key", Allowed("sim")), cluster.hosts, directory)
    finally:
        await cluster.stop()


@dataclass
class ClusterProcess:
    """`python -m hypercluster.sim.cluster` and the hosts that it announced."""

    process: subprocess.Popen[str]
    hosts: list[SimHost]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process.wait(20)


def start_cluster(directory: Path, key_file: Path, nodes: int = 1, gpus: int = 2) -> ClusterProcess:
    command = [sys.executable, "-m", "hypercluster.sim.cluster", "--dir", str(directory), "--nodes", str(nodes)]
    command += ["--gpus-per-node", str(gpus), "--authorized-key", str(key_file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    hosts = json.loads(process.stdout.readline())["hosts"]
    return ClusterProcess(process, [SimHost(**{**host, "gpus": tuple(host["gpus"])}) for host in hosts])


def plan_for(nodes: tuple[NodeTarget, ...], script: str, **changes: object) -> GangPlan:
    """A gang that runs `script` (Python source) on every rank."""
    values: dict[str, object] = {
        "job_id": "job-1",
        "attempt_no": 1,
        "marker": f"job-1/1/{os.urandom(8).hex()}",
        "nodes": nodes,
        "master_node": nodes[0].node_id,
        "entrypoint": ("python3", "-c", textwrap.dedent(script)),
        "env": {},
        "timeout_s": 20,
        "kill_grace_s": 1,
        "gang_timeout_s": 20,
        "image_digest": "name@sha256:" + "0" * 64,
        "fabric": "auto",
        "backend": "gloo",
        "profile": "sim",
        "output_cap_bytes": 1 << 20,
        "lease_renew_s": 0.5,
        "lease_stale_s": 2.0,
        **changes,
    }
    return GangPlan(**values)  # type: ignore[arg-type]


async def run(
    plan: GangPlan, ssh: Ssh, on_running: Callable[[], None] | None = None, allow: bool = True
) -> GangOutcome:
    """`run_gang` with callbacks that agree."""

    async def running(facts: RunningFacts) -> bool:
        if on_running is not None:
            on_running()
        return allow

    async def collecting() -> None:
        return None

    return await run_gang(plan, ssh=ssh, on_running=running, on_collecting=collecting, stop=asyncio.Event())


def remains(plan: GangPlan) -> set[int]:
    """Processes of the attempt that are still there."""
    return processes.marked(tag_of(plan.marker))


def wait_empty(plan: GangPlan, timeout_s: float) -> set[int]:
    """`remains`, once it is empty or the time is over."""
    limit = time.monotonic() + timeout_s
    while (left := remains(plan)) and time.monotonic() < limit:
        time.sleep(0.05)
    return left
