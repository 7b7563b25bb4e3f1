"""The whole path on one machine, on real processes: a server, two SSH hosts, a market, a job, weights, an audit.

Each step is one request over HTTP or one process; nothing here reaches into the server.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypercluster.cli.client import Client, ClientError, new_private_salt
from hypercluster.cli.keys import KeySigner, new_key_file
from hypercluster.sim.processes import Process, free_port

NODES = 2
GPUS_PER_NODE = 2
IMAGE = "demo/ring@sha256:" + "c0de" * 16
ENTRYPOINT = ["python3", "-m", "hypercluster.sim.ring_job"]
TERMINAL = ("succeeded", "failed", "timeout", "cancelled")
READY_S, JOB_S, WEIGHTS_S, VERIFY_S = 30.0, 60.0, 30.0, 120.0

type Tell = Callable[[str], None]


class StoryFailed(Exception):
    """A step did not come out as it should. `logs` names the file to read."""

    def __init__(self, message: str, logs: Path | None = None) -> None:
        super().__init__(message)
        self.logs = logs


@dataclass(slots=True)
class Outcome:
    """What the story came to."""

    ledger: str
    url: str
    job_id: str
    job_status: str
    score: dict[str, Any]
    weights: dict[str, float]
    events: int
    verified: bool
    report: dict[str, Any]
    output: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Story:
    """Runs in `directory`; `tell` gets one line for each step."""

    directory: Path
    tell: Tell

    def run(self) -> Outcome:
        """Play the whole story.

        Raises: StoryFailed
        """
        started = time.monotonic()
        keys = {
            name: new_key_file(self.directory / "keys" / f"{name}.json") for name in ("operator", "provider", "miner")
        }
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with ExitStack() as stack:
            server = stack.enter_context(self._server(port, keys["operator"]))
            provider, miner = (stack.enter_context(Client(url, keys[name])) for name in ("provider", "miner"))
            self._wait_ready(miner, server)
            self.tell(f"server listens on {url}, ledger {self.ledger}")
            hosts = self._cluster(stack, miner)
            lease = self._market(provider, miner, hosts)
            job, output = self._job(miner, lease)
            score = self._score(miner, job["id"])
            weights = self._weights(miner)
            head = int(miner.request("GET", "/v1/weight-preview", signed=False)["snapshot"]["seq"])
        report = self._verify()
        self.tell(f"a second process replayed {head} events: {'verified' if report['ok'] else 'NOT verified'}")
        self.tell(f"done in {time.monotonic() - started:.1f} s")
        return Outcome(
            str(self.ledger), url, job["id"], job["status"], score, weights, head, bool(report["ok"]), report, output
        )

    @property
    def ledger(self) -> Path:
        """The ledger file."""
        return self.directory / "data" / "challenge.sqlite3"

    def _server(self, port: int, operator: KeySigner) -> Process:
        argv = [sys.executable, "-m", "hypercluster.cli.main", "serve", "--profile", "sim"]
        argv += ["--port", str(port), "--data", str(self.directory / "data")]
        settings = {"HYPER_OPERATORS": operator.hotkey, "CHALLENGE_SHARED_TOKEN": new_private_salt()}
        return Process(argv, self.directory / "server.log", settings)

    def _wait_ready(self, client: Client, server: Process) -> None:
        until = time.monotonic() + READY_S
        while time.monotonic() < until and server.alive():
            try:
                client.request("GET", "/ready", signed=False)
            except ClientError:
                time.sleep(0.1)
            else:
                return
        raise StoryFailed("the server did not become ready", server.log)

    def _cluster(self, stack: ExitStack, client: Client) -> list[dict[str, Any]]:
        key = self.directory / "challenge.pub"
        key.write_text(client.request("GET", "/v1/ssh-key", signed=False)["ssh_public_key"] + "\n")
        argv = [sys.executable, "-m", "hypercluster.sim.cluster", "--dir", str(self.directory / "hosts")]
        argv += ["--nodes", str(NODES), "--gpus-per-node", str(GPUS_PER_NODE), "--authorized-key", str(key)]
        cluster = stack.enter_context(Process(argv, self.directory / "cluster.log"))
        line = cluster.read_line()
        if not line:
            raise StoryFailed("the hosts did not start", cluster.log)
        hosts: list[dict[str, Any]] = json.loads(line)["hosts"]
        self.tell(f"{len(hosts)} SSH hosts run: {', '.join(host['endpoint'] for host in hosts)}")
        return hosts

    def _market(self, provider: Client, miner: Client, hosts: list[dict[str, Any]]) -> dict[str, Any]:
        provider.request("POST", "/v1/providers/register", {"display_name": "demo provider"})
        nodes = [self._node(provider, host) for host in hosts]
        self.tell(f"the provider registered {len(nodes)} nodes of {GPUS_PER_NODE} GPUs (claims, not proofs)")
        offer = provider.request(
            "POST",
            "/v1/offers",
            {"node_ids": nodes, "mode": "cluster", "price_per_hour": 4, "max_lifetime_hours": 1},
        )
        self.tell(f"offer {offer['id'][:8]} is listed at {offer['price_per_hour']} USD an hour")
        rented = miner.request("POST", f"/v1/offers/{offer['id']}/rent", {"lifetime_hours": 1})
        lease: dict[str, Any] = rented["lease"]
        self.tell(f"the miner rented it: lease {lease['id'][:8]}, event {rented['seq']}")
        return lease

    def _node(self, provider: Client, host: Mapping[str, Any]) -> str:
        body = {
            "gpu_model": "sim-gpu",
            "gpu_count": len(host["gpus"]),
            "ssh_endpoint": host["endpoint"],
            "ssh_user": host["user"],
            "ssh_host_key": host["host_key"],
            "private_salt": new_private_salt(),
        }
        return str(provider.request("POST", "/v1/nodes", body)["id"])

    def _job(self, miner: Client, lease: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        spec = {
            "image_digest": IMAGE,
            "entrypoint": ENTRYPOINT,
            "world_size": NODES * GPUS_PER_NODE,
            "nnodes": NODES,
            "nproc_per_node": GPUS_PER_NODE,
            "backend": "gloo",
            "timeout_s": 60,
            "resource": {"gpus": NODES * GPUS_PER_NODE},
            "lease_id": lease["id"],
        }
        job = miner.request("POST", "/v1/jobs", spec)
        self.tell(f"job {job['id'][:8]}: {spec['world_size']} ranks on {NODES} nodes, sum of squares round a ring")
        job = self._follow(miner, job)
        if job["status"] != "succeeded":
            raise StoryFailed(f"the job ended {job['status']}: {job['failure_code']}", self.directory / "server.log")
        path = f"/v1/jobs/{job['id']}/attempts/1/logs"
        output = [
            miner.data(f"{path}?rank={rank}&stream=stdout").decode().strip() for rank in range(NODES * GPUS_PER_NODE)
        ]
        self.tell(f"  {output[0]}")
        return job, output

    def _follow(self, miner: Client, job: dict[str, Any]) -> dict[str, Any]:
        until, shown = time.monotonic() + JOB_S, ""
        while time.monotonic() < until:
            if job["status"] != shown:
                shown = job["status"]
                self.tell(f"  job is {shown}")
            if shown in TERMINAL:
                return job
            time.sleep(0.05)
            job = miner.request("GET", f"/v1/jobs/{job['id']}")
        raise StoryFailed(f"the job is still {shown} after {JOB_S:.0f} s", self.directory / "server.log")

    def _score(self, miner: Client, job_id: str) -> dict[str, Any]:
        hotkey = miner.request("GET", f"/v1/jobs/{job_id}")["submitter_hotkey"]
        score: dict[str, Any] = miner.request("GET", f"/v1/scores/{hotkey}", signed=False)["items"][0]
        factors = " x ".join(str(score[name]) for name in ("correctness", "efficiency", "fabric_gate", "tee_bonus"))
        self.tell(f"score: {factors} = {score['composite']}")
        return score

    def _weights(self, miner: Client) -> dict[str, float]:
        until = time.monotonic() + WEIGHTS_S
        while time.monotonic() < until:
            preview = miner.request("GET", "/v1/weight-preview", signed=False)
            weights: dict[str, float] = preview["weights"]
            if weights and preview.get("snapshot", {}).get("source") == "snapshot":
                for hotkey, weight in weights.items():
                    self.tell(f"weight {weight:.6f}  {hotkey}")
                return weights
            time.sleep(0.2)
        raise StoryFailed("no weight snapshot was taken", self.directory / "server.log")

    def _verify(self) -> dict[str, Any]:
        argv = [sys.executable, "-m", "hypercluster.cli.main", "replay", "verify", str(self.ledger), "-o", "json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=VERIFY_S, check=False)
        try:
            report: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise StoryFailed(f"the replay gave no report: {done.stderr.strip()}") from error
        return report | {"ok": done.returncode == 0}
