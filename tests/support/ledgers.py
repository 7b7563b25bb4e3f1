"""Real ledgers without a network: the writer and the deciders, driven by signed requests and by workers' facts."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from nacl.signing import SigningKey
from pydantic import BaseModel

from events.blobs import BlobStore
from events.envelope import CommandRecord
from events.ledger import Ledger, LedgerReader
from events.private import PrivateStore
from hypercluster.cli.keys import KeySigner, signer_from_seed
from hypercluster.domain import router, sealing, strict_json
from hypercluster.domain.identity import signatures
from hypercluster.domain.identity.signed_text import SignedText
from hypercluster.domain.jobs import internal as jobs
from hypercluster.domain.jobs import preflight
from hypercluster.domain.kernel import RULES, Accepted
from hypercluster.domain.policy import epochs
from hypercluster.domain.policy.internal import BeginPolicy, OpenLedger
from hypercluster.domain.policy.release import policy_of
from hypercluster.domain.weights.internal import TakeSnapshot
from hypercluster.runtime.clock import Clock, ClockGuard
from hypercluster.runtime.writer import Answer, Submission, Writer
from projections.fold import State
from projections.folds.jobs import Attempt

T0 = 1_764_547_200_000_000
SECOND = 1_000_000
INLINE_BYTES_MAX = 8 * 1024
ORIGIN = "hypercluster-test"
AUDIENCE = "hypercluster@test"
IMAGE = "registry.example/train@sha256:" + "0a" * 32
LEDGER_KEY = SigningKey(b"\x07" * 32)


class HandClock(Clock):
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.us = T0

    def wall_us(self) -> int:
        return self.us

    def monotonic_us(self) -> int:
        return self.us


def person(name: str, scheme: str = "sr25519") -> KeySigner:
    """A key that is the same in every run."""
    return signer_from_seed(hashlib.sha256(name.encode()).digest(), scheme)


@dataclass(frozen=True)
class Ended:
    """How a worker reports the end of an attempt; the default is success."""

    failure_code: str | None = None
    phase: str = "main"


class Town:
    """A deployment in one directory. Time passes only through `pass_time`."""

    def __init__(self, directory: Path, profile: str = "sim") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "challenge.sqlite3"
        self.clock, self.state, self.profile = HandClock(), State(), profile
        self.ledger = Ledger.create(self.path, LEDGER_KEY, ORIGIN)
        self.private = PrivateStore(directory / "private.sqlite3")
        self.blobs = BlobStore(directory / "blobs")
        guard = ClockGuard(self.clock, 0)
        self.writer = Writer(self.ledger, self.state, guard, self.private, lambda commit: None)
        self.operator = person("operator", "ed25519")
        self._nonces = 0
        self._begin()

    def close(self) -> None:
        """Store the last checkpoint and close the files."""
        self.ledger.idle()
        self.ledger.close()
        self.private.close()

    def pass_time(self, seconds: float) -> None:
        """Let the clock advance."""
        self.clock.us += int(seconds * SECOND)

    def submit(self, submissions: Sequence[Submission]) -> list[Answer]:
        """Decide commands as one group."""
        self.writer.decide_now(submissions)
        return [submission.future.result(timeout=0) for submission in submissions]

    def ask(self, signer: KeySigner, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        """What the server makes of a signed request."""
        return self.submit([self.request(signer, method, path, body)])[0]

    def made(self, signer: KeySigner, method: str, path: str, body: dict[str, Any] | None = None) -> str:
        """The id that an accepted request made."""
        return subject(self.ask(signer, method, path, body))

    def request(self, signer: KeySigner, method: str, path: str, body: dict[str, Any] | None = None) -> Submission:
        """A signed request, ready for the writer."""
        data = strict_json.dumps(body).encode() if body is not None else b""
        self._nonces += 1
        text = SignedText(
            audience=AUDIENCE,
            method=method,
            path=path,
            hotkey=signer.hotkey,
            nonce=f"nonce-{self._nonces:010d}",
            seconds=self.clock.us // SECOND,
            body_sha256=hashlib.sha256(data).hexdigest(),
        )
        _, raw = signatures.parse_signature(signer.sign(text.message()))
        matched = router.match(method, path)
        assert matched is not None, path
        private = [name for name in matched.route.private if body and name in body]
        sealed = sealing.seal(body or {}, matched.route.private, b"\x01" * 32) if private else None
        stored = strict_json.dumps(sealed.public) if sealed else data.decode()
        blob = self.blobs.put(stored.encode()) if len(stored) > INLINE_BYTES_MAX else None
        record = CommandRecord(
            kind=matched.route.kind,
            origin="signed",
            received_us=self.clock.us,
            body=stored if sealed is None and blob is None else None,
            public=stored if sealed is not None and blob is None else None,
            body_blob=blob,
            text=str(text),
            scheme=signer.scheme,
            signature=base64.b64encode(raw).decode(),
        )
        command = router.signed_command(matched, record, actor=signer.hotkey, nonce=text.nonce, body=stored)
        openings = (*sealed.openings, sealing.body_opening(data, b"\x01" * 32)) if sealed else ()
        return Submission(command, record, openings)

    def report(self, kind: str, body: BaseModel, *, cause: int, attempt: int = 0) -> Answer:
        """What the server makes of a worker's fact."""
        command = router.internal_command(kind, body, cause=cause, attempt=attempt, received_us=self.clock.us)
        return self.submit([Submission(command, router.record_of(command))])[0]

    def snapshot(self) -> Answer:
        """Ask for a weight snapshot, as the worker does."""
        epoch = epochs.epoch_of(list(self.state.policy.policies.values()), self.clock.us)
        return self.report("weights.snapshot", TakeSnapshot(epoch=epoch), cause=self.ledger.size, attempt=epoch)

    def add_nodes(self, provider: KeySigner, count: int, prefix: str = "node") -> list[str]:
        """A provider with nodes of two GPUs each."""
        self.ask(provider, "POST", "/v1/providers/register", {"display_name": "a provider"})
        facts = {"gpu_model": "H100_80GB", "gpu_count": 2, "ssh_endpoint": "127.0.0.2:22"}
        return [self.made(provider, "POST", "/v1/nodes", facts | {"node_id": f"{prefix}-{n}"}) for n in range(count)]

    def rent(self, provider: KeySigner, renter: KeySigner, nodes: Sequence[str], hours: int = 24) -> str:
        """Offer the nodes together and rent them; the lease's id."""
        mode = "cluster" if len(nodes) > 1 else "single"
        body = {"node_ids": list(nodes), "price_per_hour": 2, "max_lifetime_hours": hours, "mode": mode}
        offer = self.made(provider, "POST", "/v1/offers", body)
        return self.made(renter, "POST", f"/v1/offers/{offer}/rent")

    def submit_job(self, submitter: KeySigner, lease: str, nnodes: int, **extra: Any) -> str:
        """Submit a job of two ranks per node."""
        body = {
            "image_digest": IMAGE,
            "entrypoint": ["python", "train.py"],
            "world_size": 2 * nnodes,
            "nnodes": nnodes,
            "nproc_per_node": 2,
            "resource": {},
            "timeout_s": 600,
            "lease_id": lease,
        }
        return self.made(submitter, "POST", "/v1/jobs", body | extra)

    def place(self, job_id: str) -> Attempt:
        """Have the job placed."""
        job = self.state.jobs.jobs[job_id]
        body = jobs.PlaceJob(job_id=job_id)
        accepted(self.report("job.place", body, cause=self.ledger.size, attempt=job.submitted_pos))
        return self.state.jobs.attempts[f"{job_id}/{self.state.jobs.jobs[job_id].attempts}"]

    def run(self, attempt: Attempt, ended: Ended | None = None, *, seconds: int = 30) -> None:
        """Everything that workers report about an attempt, from its preflight to its score."""
        end, key = ended or Ended(), {"job_id": attempt.job_id, "attempt_no": attempt.attempt_no}
        placed = attempt.placed_pos
        transcript = transcript_of(attempt)
        verdict = preflight.judge(transcript)
        facts = {"program": verdict.program, "transport": verdict.transport}
        measured = verdict.measured_bytes_per_s
        running = jobs.AttemptIsRunning(
            **key, **facts, measured_bytes_per_s=measured, transcript=self.blobs.put(transcript)
        )
        self.pass_time(2)
        accepted(self.report("attempt.run", running, cause=placed))
        self.pass_time(seconds)
        accepted(self.report("attempt.collect", jobs.AttemptIsCollecting(**key), cause=placed))
        exits = tuple(
            jobs.RankReport(rank=rank, exit_code=1 if end.failure_code else 0)
            for rank in range(sum(len(node.gpus) for node in attempt.nodes))
        )
        over = jobs.AttemptIsOver(**key, phase=end.phase, failure_code=end.failure_code, ranks=exits)
        accepted(self.report("attempt.end", over, cause=placed))
        number = self.state.jobs.attempts[f"{attempt.job_id}/{attempt.attempt_no}"].ended_pos or 0
        accepted(self.report("attempt.score", jobs.ScoreAttempt(**key), cause=number))
        accepted(self.report("attempt.clean", jobs.AttemptIsClean(**key), cause=placed))

    def _begin(self) -> None:
        opened = OpenLedger(
            origin=ORIGIN,
            profile=self.profile,
            public_key=bytes(LEDGER_KEY.verify_key).hex(),
            slug="hypercluster",
            audience=AUDIENCE,
            operators=(self.operator.hotkey,),
            release="0.1.0",
        )
        accepted(self.report("ledger.open", opened, cause=0))
        begun = BeginPolicy(policy=policy_of(self.profile), rules=RULES, release="0.1.0")
        accepted(self.report("policy.begin", begun, cause=1))


def transcript_of(attempt: Attempt, elapsed_us: int = 200) -> bytes:
    """The transcript of a preflight in which every rank answered rightly."""
    nodes = [node.node_id for node in attempt.nodes for _ in node.gpus]
    program = preflight.RING if len(nodes) > 1 else preflight.DIGEST
    marker = f"{attempt.job_id}/{attempt.attempt_no}"
    seeds = [hashlib.sha256(f"{marker} {rank}".encode()).digest() for rank in range(len(nodes))]
    nonce = hashlib.sha256(marker.encode()).digest()
    size, iterations = 4096, 2
    inputs = [preflight.expand(seed, preflight.input_bytes(program, size, iterations)) for seed in seeds]
    ring = program == preflight.RING
    result = preflight.xor_all(inputs) if ring else preflight.digest_chain(nonce, inputs[0], iterations)
    ranks = tuple(
        preflight.RankRecord(
            rank=rank,
            node_id=node_id,
            seed=seeds[rank].hex(),
            answer="answered",
            digest=preflight.answer_digest(nonce, rank, result),
            node_us=elapsed_us,
            heard_us=elapsed_us,
        )
        for rank, node_id in enumerate(nodes)
    )
    transcript = preflight.Transcript(
        format=1,
        marker=marker,
        program="ring-xor-1" if ring else "digest-1",
        transport="eth",
        nonce=nonce.hex(),
        buffer_bytes=size,
        iterations=iterations,
        load_us=0,
        elapsed_us=elapsed_us,
        ranks=ranks,
    )
    return preflight.encode(transcript)


def accepted(answer: Answer) -> Accepted:
    """The acceptance in an answer."""
    assert isinstance(answer.decision, Accepted), answer.decision
    return answer.decision


def subject(answer: Answer) -> str:
    """The id of what an accepted command made."""
    return accepted(answer).subject


def govern(town: Town, provider: KeySigner, node: str) -> None:
    """What an operator signs: a list of owners too long for a leaf, a policy, a node suspended and readmitted."""
    people = [provider.hotkey, *(person(f"neuron {number}").hotkey for number in range(79))]
    entries = [{"uid": uid, "hotkey": hotkey, "coldkey": hotkey} for uid, hotkey in enumerate(people)]
    accepted(town.ask(town.operator, "POST", "/v1/operator/metagraph", {"netuid": 1, "block": 9, "entries": entries}))
    policy = msgspec.to_builtins(msgspec.structs.replace(policy_of(town.profile), version=2, weight_cap_ppm=500_000))
    accepted(town.ask(town.operator, "POST", "/v1/operator/policy", {"policy": policy}))
    for verb in ("suspend", "readmit"):
        target = {"node_id": node, "reason_code": "inspection"}
        accepted(town.ask(town.operator, "POST", f"/v1/operator/{verb}", target))


def history(directory: Path, jobs_run: int = 4) -> Town:
    """Two providers, two renters, jobs that succeed and fail, refusals, repeats, snapshots. Leaves the town open."""
    town = Town(directory)
    bob, carl = person("bob"), person("carl", "ed25519")
    ada, eve = person("ada"), person("eve", "ed25519")
    lease = town.rent(bob, ada, town.add_nodes(bob, 2, "bob"))
    other = town.rent(carl, eve, town.add_nodes(carl, 1, "carl"))
    govern(town, bob, town.add_nodes(bob, 1, "spare")[0])
    town.pass_time(10)
    town.snapshot()
    for number in range(jobs_run):
        for renter, rented, nnodes in ((ada, lease, 2), (eve, other, 1)):
            job = town.submit_job(
                renter, rented, nnodes, client_request_id=f"request-{number}", env={"TOKEN": "secret"}
            )
            failed = Ended("rank_failed") if number % 3 == 2 else None
            town.run(town.place(job), failed)
        town.ask(bob, "POST", "/v1/providers/register", {})  # changes nothing
        town.ask(eve, "POST", f"/v1/jobs/{job}/cancel")  # refused: it has ended
        claim = {"status": "failed", "integrity_codes": ["fabric_lie"], "verified": False}
        accepted(town.ask(eve, "POST", f"/v1/jobs/{job}/results", claim))  # voids her own side
        town.ask(carl, "POST", "/v1/nodes/heartbeat")
        town.pass_time(5)
        town.snapshot()
    town.ask(eve, "POST", f"/v1/leases/{other}/terminate", {"reason": "done"})
    return town


def decoded(path: Path, pos: int) -> dict[str, Any]:
    """An entry of a ledger file, as plain values."""
    with LedgerReader(path) as reader:
        found: dict[str, Any] = json.loads(reader.entries(pos - 1, 1)[0][1])
    return found
