"""A server as a process that can be killed and started again, hosts that outlive it, and clients that go on."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx2

from hypercluster.effects.plan import tag_of
from hypercluster.effects.remote import processes
from hypercluster.sim.cluster import SimHost
from hypercluster.sim.processes import free_port
from tests.support.clusters import ClusterProcess
from tests.support.serving import TOKEN, Key

AUDIENCE = "hypercluster"
IMAGE = "test/job@sha256:" + "ab" * 32
TERMINAL = ("succeeded", "failed", "timeout", "cancelled")
READY_S = 30.0

# What every rank does: it says that it ran, in a file that outlives its scratch directory, then does as it is told.
RANK = """
import os, sys, time
line = " ".join(os.environ[name] for name in ("HYPER_JOB_ID", "HYPER_ATTEMPT", "RANK")) + "\\n"
handle = os.open(os.environ["RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(handle, line.encode())
os.close(handle)
time.sleep(float(os.environ.get("SLEEP_S", "0")))
print("rank", os.environ["RANK"], flush=True)
sys.exit(int(os.environ.get("EXIT", "0")) if os.environ["RANK"] == os.environ.get("FAILING_RANK", "") else 0)
"""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, detail: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {detail}")
        self.status, self.code = status, str(detail.get("code"))


@dataclass
class Caller:
    """One hotkey that talks to the server at `url`."""

    url: str
    key: Key = field(default_factory=Key)
    http: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=20.0))

    def send(self, method: str, path: str, value: object = None) -> dict[str, Any]:
        """A signed request; the answer's JSON. Raises: Refused, httpx2.TransportError"""
        body = b"" if value is None else json.dumps(value).encode()
        headers = self.key.headers(method, path, body, audience=AUDIENCE)
        answer = self.http.request(method, self.url + path, content=body, headers=headers)
        if answer.status_code >= 300:
            raise Refused(answer.status_code, answer.json()["detail"])
        shown: dict[str, Any] = answer.json()
        return shown

    def post(self, path: str, value: object = None) -> dict[str, Any]:
        return self.send("POST", path, value)

    def get(self, path: str) -> dict[str, Any]:
        return self.send("GET", path)

    def items(self, path: str) -> list[dict[str, Any]]:
        """All items of a list, page by page."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.get(f"{path}{'&' if '?' in path else '?'}limit=100{after}")
            found += page["items"]
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


class ServerProcess:
    """`hypercluster serve` on one data directory and one port, as often as it is started."""

    def __init__(self, directory: Path, profile: str = "sim", **environment: str) -> None:
        self.data, self.log = directory / "data", directory / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.operator = Key()
        self._profile = profile
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HYPER_", "CHALLENGE_"))},
            "HYPER_OPERATORS": self.operator.hotkey,
            "CHALLENGE_SHARED_TOKEN": TOKEN,
            **environment,
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Path:
        return self.data / "challenge.sqlite3"

    def start(self) -> Self:
        """Start it and wait until it takes writes."""
        argv = [sys.executable, "-m", "hypercluster.cli.main", "serve", "--profile", self._profile]
        argv += ["--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.data)]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if httpx2.get(f"{self.url}/ready", timeout=5.0).status_code == 200:
                    return self
            except httpx2.TransportError:
                pass
            time.sleep(0.03)
        raise AssertionError(f"not ready after {READY_S:.0f} s: {self.log.read_text()}")

    def kill(self) -> None:
        """Take the power away."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> int:
        """Its exit code. Raises: subprocess.TimeoutExpired"""
        assert self.process is not None
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def stop(self) -> None:
        """End it politely, at last by force."""
        if self.process is None:
            return
        self.terminate()
        try:
            self.wait(25)
        finally:
            self.kill()

    def faults(self) -> list[str]:
        """What the log says of exceptions."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if '"level": "error"' in line or "Traceback" in line]

    def public_key(self, directory: Path) -> Path:
        """A file with the key that hosts must let in."""
        path = directory / "challenge.pub"
        path.write_text(httpx2.get(f"{self.url}/v1/ssh-key").json()["ssh_public_key"] + "\n", encoding="ascii")
        return path


@dataclass
class Work:
    """How jobs of a test look: where ranks say that they ran, and the program that they are."""

    directory: Path

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rank.py").write_text(RANK, encoding="utf-8")

    @property
    def runs(self) -> Path:
        return self.directory / "runs"

    def ran(self) -> list[tuple[str, int, int]]:
        """(job, attempt, rank) of every start of an entrypoint, in order."""
        lines = self.runs.read_text().splitlines() if self.runs.exists() else []
        return [(job, int(attempt), int(rank)) for job, attempt, rank in (line.split() for line in lines)]

    def spec(self, nnodes: int = 1, nproc: int = 1, timeout_s: int = 30, **given: object) -> dict[str, Any]:
        """The body of a job. Upper-case names become environment variables of the ranks."""
        env = {name: str(value) for name, value in given.items() if name.isupper()}
        rest = {name: value for name, value in given.items() if not name.isupper()}
        return {
            "image_digest": IMAGE,
            "entrypoint": ["python3", "-c", "exec(open(__import__('os').environ['PROGRAM']).read())"],
            "world_size": nnodes * nproc,
            "nnodes": nnodes,
            "nproc_per_node": nproc,
            "backend": "gloo",
            "timeout_s": timeout_s,
            "resource": {"gpus": nnodes * nproc},
            "env": {"RUNS": str(self.runs), "PROGRAM": str(self.directory / "rank.py"), **env},
            "private_salt": os.urandom(32).hex(),
            **rest,
        }


def node_body(host: Any, **changes: object) -> dict[str, Any]:
    """What registering a host as a node takes."""
    return {
        "gpu_model": "sim-gpu",
        "gpu_count": len(host.gpus),
        "ssh_endpoint": host.endpoint,
        "ssh_user": host.user,
        "ssh_host_key": host.host_key,
        "private_salt": os.urandom(32).hex(),
        **changes,
    }


def job_over(caller: Caller, job_id: str, timeout_s: float) -> dict[str, Any]:
    """The job, once it has ended and nothing of its last attempt is left."""
    until = time.monotonic() + timeout_s
    while True:
        job = caller.get(f"/v1/jobs/{job_id}")
        if job["status"] in TERMINAL:
            attempts = caller.items(f"/v1/jobs/{job_id}/attempts")
            if all(attempt["cleaned"] for attempt in attempts):
                return job
        assert time.monotonic() < until, (job, caller.items(f"/v1/jobs/{job_id}/attempts"))
        time.sleep(0.05)


def job_runs(caller: Caller, job_id: str, timeout_s: float, attempt_no: int = 1) -> None:
    """Return once the entrypoint of this attempt is released."""
    until = time.monotonic() + timeout_s
    while True:
        job = caller.get(f"/v1/jobs/{job_id}")
        if (job["status"], job["attempts"]) == ("running", attempt_no):
            return
        assert time.monotonic() < until and job["status"] not in TERMINAL, job
        time.sleep(0.03)


def left_of(attempts: set[tuple[str, int]], timeout_s: float = 0.0) -> set[int]:
    """Processes that carry the marker of one of these attempts, once there are none or the time is over."""
    tags = {tag_of(f"{job}/{attempt}").encode() for job, attempt in attempts}

    def find() -> set[int]:
        return {pid for pid in processes._pids() if any(tag in _environment(pid) for tag in tags)}

    return processes.wait_gone(find, timeout_s)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True)
class Acknowledged:
    """A 200 answer. entry: the event's exact leaf where it could still be asked for."""

    seq: int
    path: str
    hotkey: str
    subject: str
    signature: str
    entry: Any


class Load:
    """Clients that send commands all the time, each in a thread; a lost connection is no reason to stop.

    renter, lease_id: who may run jobs, and where. longest_job_s: the entrypoints take from 0.2 s up to this.
    """

    def __init__(self, url: str, seed: int, work: Work, renter: Key, lease_id: str, longest_job_s: float) -> None:
        self._url, self._seed, self._work = url, seed, work
        self._renter, self._lease_id, self._longest_job_s = renter, lease_id, longest_job_s
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.acknowledged: list[Acknowledged] = []
        self.broken = 0
        self.errors: list[str] = []

    @contextmanager
    def running(self, traders: int, submitters: int) -> Iterator[Self]:
        """Clients of both kinds for as long as the context lasts."""
        plays = [self._trade] * traders + [self._submit] * submitters
        for number, play in enumerate(plays):
            thread = threading.Thread(target=self._live, args=(play, random.Random(self._seed * 100 + number)))
            self._threads.append(thread)
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def _live(self, play: Callable[[random.Random], None], chance: random.Random) -> None:
        while not self._stop.is_set():
            try:
                play(chance)
            except httpx2.TransportError:  # killed in the middle of it: what was not answered may have happened or not
                with self._turn:
                    self.broken += 1
                self._stop.wait(0.05)
            except Refused as refused:
                if refused.status != 503:
                    self.errors.append(str(refused))
                self._stop.wait(0.05)

    def _trade(self, chance: random.Random) -> None:
        """One round of the market: a provider with a node, an offer, a renter, the end of the lease."""
        with Recording(self, self._url) as provider, Recording(self, self._url) as renter:
            provider.post("/v1/providers/register", {"display_name": f"p{chance.randrange(10**9)}"})
            node = provider.post("/v1/nodes", {"gpu_model": "sim-gpu", "gpu_count": chance.randint(1, 8)})["id"]
            for _ in range(chance.randint(1, 3)):
                provider.post("/v1/nodes/heartbeat")
            body = {"node_ids": [node], "price_per_hour": chance.randint(1, 9), "max_lifetime_hours": 1}
            offer = provider.post("/v1/offers", body)["id"]
            if chance.random() < 0.3:
                provider.send("DELETE", f"/v1/offers/{offer}")
                return
            lease = renter.post(f"/v1/offers/{offer}/rent", {"lifetime_hours": 1})["lease"]["id"]
            provider.post("/v1/nodes/heartbeat")
            renter.post(f"/v1/leases/{lease}/terminate", {"reason": "enough", "private_salt": os.urandom(32).hex()})

    def _submit(self, chance: random.Random) -> None:
        """One job on one or both hosts, followed to its end."""
        with Recording(self, self._url, self._renter) as caller:
            spec = self._work.spec(
                chance.choice((1, 2)),
                1,
                20,
                SLEEP_S=f"{chance.uniform(0.2, self._longest_job_s):.2f}",
                placement_policy="spread",
                lease_id=self._lease_id,
            )
            job = caller.post("/v1/jobs", spec)["id"]
            while not self._stop.is_set() and caller.get(f"/v1/jobs/{job}")["status"] not in TERMINAL:
                self._stop.wait(0.1)

    def took(self, one: Acknowledged) -> None:
        """Keep what was answered."""
        with self._turn:
            self.acknowledged.append(one)


class Recording(Caller):
    """Keeps every acknowledged write with the leaf of its event, asked for right after the answer."""

    def __init__(self, load: Load, url: str, key: Key | None = None) -> None:
        super().__init__(url, key or Key())
        self._load = load

    def send(self, method: str, path: str, value: object = None) -> dict[str, Any]:
        if method == "GET":
            return super().send(method, path, value)
        body = b"" if value is None else json.dumps(value).encode()
        headers = self.key.headers(method, path, body, audience=AUDIENCE)
        answer = self.http.request(method, self.url + path, content=body, headers=headers)
        if answer.status_code >= 300:
            raise Refused(answer.status_code, answer.json()["detail"])
        shown: dict[str, Any] = answer.json()
        signature, entry = headers["X-Signature"].partition(":")[2], None
        try:
            entry = super().send("GET", f"/v1/events/{shown['seq']}")["entry"]
        finally:
            subject = str(shown.get("id") or "")
            self._load.took(Acknowledged(shown["seq"], path, self.key.hotkey, subject, signature, entry))
        return shown


_LIAR = """
import asyncio, json, sys, textwrap
from pathlib import Path
from hypercluster.sim.cluster import Cluster, serve
from tests.support.clusters import LyingHost
from hypercluster.sim import cluster

directory, key_file, rewrite = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

class Liars(Cluster):
    def __init__(self, directory, nodes, gpus_per_node, authorized_key):
        super().__init__(directory, 0, gpus_per_node, authorized_key)
        liar = LyingHost(directory / "liar", 40, gpus_per_node, authorized_key)
        liar.rewrite = textwrap.dedent(rewrite)
        self._hosts.append(liar)

cluster.Cluster = Liars
asyncio.run(serve(directory, 1, 2, key_file.read_text(), cluster._say_ready))
"""


def start_liar(directory: Path, key_file: Path, rewrite: str) -> ClusterProcess:
    """One host that runs what `rewrite` makes of each program, as a process of its own."""
    argv = [sys.executable, "-c", _LIAR, str(directory), str(key_file), rewrite]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    (host,) = json.loads(process.stdout.readline())["hosts"]
    return ClusterProcess(process, [SimHost(**{**host, "gpus": tuple(host["gpus"])})])
