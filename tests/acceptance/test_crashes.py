"""The server's process ends at any moment, again and again; what it had answered stands, and nothing runs twice."""

import asyncio
import base64
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import replay.verify
from events.ledger import LedgerReader
from hypercluster.runtime.start import running
from hypercluster.runtime.store import fold_ledger, recorded_pages
from hypercluster.runtime.writer import Submission, Writer
from projections.tables import ReadModels, ReadView
from tests.support.clusters import ClusterProcess, start_cluster
from tests.support.crash_rig import (
    AUDIENCE,
    Acknowledged,
    Caller,
    Load,
    ServerProcess,
    Work,
    job_over,
    job_runs,
    left_of,
    node_body,
)
from tests.support.serving import settings_of

DRAIN_S = 60.0


@dataclass
class Rig:
    """A server with two rented hosts that outlive it."""

    server: ServerProcess
    work: Work
    miner: Caller
    lease_id: str


@contextmanager
def rig(directory: Path) -> Iterator[Rig]:
    server = ServerProcess(directory)
    cluster: ClusterProcess | None = None
    try:
        server.start()
        cluster = start_cluster(directory / "hosts", server.public_key(directory), nodes=2)
        with Caller(server.url) as provider, Caller(server.url) as miner:
            provider.post("/v1/providers/register", {})
            nodes = [provider.post("/v1/nodes", node_body(host))["id"] for host in cluster.hosts]
            body = {"node_ids": nodes, "mode": "cluster", "price_per_hour": 1, "max_lifetime_hours": 1}
            offer = provider.post("/v1/offers", body)["id"]
            lease = miner.post(f"/v1/offers/{offer}/rent", {"lifetime_hours": 1})["lease"]["id"]
            yield Rig(server, Work(directory / "work"), miner, lease)
    finally:
        server.stop()
        if cluster is not None:
            cluster.end()


def kill_again_and_again(directory: Path, kills: int, longest_job_s: float) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    notes: list[Path] = []
    with rig(directory) as it:
        load = Load(it.server.url, seed, it.work, it.miner.key, it.lease_id, longest_job_s)
        with load.running(traders=2, submitters=2):
            for number in range(kills):
                time.sleep(chance.uniform(0.2, 1.2))
                notes.append(directory / f"checkpoint-{number}")
                notes[-1].write_bytes(httpx2.get(f"{it.server.url}/v1/checkpoint").content)
                time.sleep(chance.uniform(0.0, 0.2))
                it.server.kill()
                it.server.start()
        attempts = all_jobs_end(it)
        assert left_of(attempts, 5.0) == set()
        dump = settled_dump(it)
        assert it.server.faults() == []
    check_runs(it.work, attempts)
    check_acknowledged(it.server.ledger, load.acknowledged)
    assert load.errors == []
    assert load.broken >= 1 or kills < 10, "no client was ever cut off"
    assert dump == rebuilt_dump(it.server.ledger, directory / "rebuilt.sqlite3")
    verify(it.server.ledger, notes)
    print(f"{kills} kills, {len(load.acknowledged)} answers, {load.broken} cut off, {len(attempts)} attempts")


def all_jobs_end(it: Rig) -> set[tuple[str, int]]:
    """(job, attempt) of all there were, once every job is terminal and every attempt clean."""
    attempts: set[tuple[str, int]] = set()
    until = time.monotonic() + DRAIN_S
    for job in it.miner.items("/v1/jobs"):
        over = job_over(it.miner, job["id"], max(1.0, until - time.monotonic()))
        assert over["status"] == "succeeded" or over["failure_code"] in ("control_plane_lost", "no_capacity"), over
        tries = it.miner.items(f"/v1/jobs/{job['id']}/attempts")
        attempts |= {(job["id"], one["attempt_no"]) for one in tries}
        assert {one["failure_code"] for one in tries if one["status"] != "succeeded"} <= {"control_plane_lost"}, tries
    assert attempts
    return attempts


def settled_dump(it: Rig) -> list[tuple[str, str, int, int, bytes]]:
    """The rows that the server leaves behind when it is told to stop."""
    it.server.terminate()
    assert it.server.wait(20) == 0
    return ReadView(it.server.data / "read-models.sqlite3").dump()


def rebuilt_dump(ledger: Path, fresh: Path) -> list[tuple[str, str, int, int, bytes]]:
    """The rows that the ledger alone gives."""
    reader = LedgerReader(ledger)
    models = ReadModels(fresh, b"rebuilt")
    try:
        fold_ledger(reader, models)
        return ReadView(fresh).dump()
    finally:
        models.close()
        reader.close()


def check_runs(work: Work, attempts: set[tuple[str, int]]) -> None:
    """Every rank of every attempt started its entrypoint at most once, and no other did."""
    ran = work.ran()
    twice = {run: count for run, count in Counter(ran).items() if count > 1}
    assert twice == {}
    assert ran and {(job, attempt) for job, attempt, _ in ran} <= attempts


def check_acknowledged(ledger: Path, acknowledged: list[Acknowledged]) -> None:
    """Every answer that was given stands in the ledger, with the bytes that were shown and the signature sent."""
    reader = LedgerReader(ledger)
    try:
        entries = {one.pos: one for page in recorded_pages(reader) for one in page}
    finally:
        reader.close()
    assert len(acknowledged) > 10
    for one in acknowledged:
        recorded = entries[one.seq]
        command = recorded.envelope.command
        assert command is not None and command.signature is not None
        assert recorded.envelope.actor == one.hotkey
        if not one.path.endswith("/heartbeat"):  # a second one soon after changes nothing: its answer names the first
            assert base64.b64decode(command.signature).hex() == one.signature, one
        if one.entry is not None:
            assert msgspec.json.decode(recorded.entry) == one.entry
        if one.subject:
            assert one.subject in recorded.entry.decode()


def verify(ledger: Path, notes: list[Path]) -> None:
    """Another process replays the ledger, against what was promised before the last kill; older promises hold too."""
    for note in notes[:-1]:
        report = replay.verify.verify(ledger, checkpoint=note.read_text(), level=1)
        assert report.failed is None, report.failed
    argv = [sys.executable, "-m", "hypercluster.cli.main", "replay", "verify", str(ledger), "-o", "json"]
    promised = ["--checkpoint", str(notes[-1])] if notes else []
    done = subprocess.run([*argv, *promised], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_that_is_told_to_stop_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with rig(tmp_path) as it:
        spec = it.work.spec(2, 1, 60, SLEEP_S=60, lease_id=it.lease_id)
        job_id = it.miner.post("/v1/jobs", spec)["id"]
        job_runs(it.miner, job_id, 15)
        with Stream(it.server.url) as stream, slow_write(it.server, it.miner) as finish:
            began = time.monotonic()
            it.server.terminate()
            time.sleep(0.3)
            status, answer = finish()
            assert status == 200, answer
            assert it.server.wait(12) == 0
            assert time.monotonic() - began < 12
        assert left_of({(job_id, 1)}, 1.0) == set()
        assert stream.error is None
        ids = [int(line.removeprefix("id: ")) for line in stream.lines if line.startswith("id: ")]
        assert ids == list(range(1, ids[-1] + 1))
        assert stream.lines[-1] == f": the server stops, resume after {ids[-1]}"
        it.server.start()
        assert it.miner.get(f"/v1/events/{answer['seq']}")["actor"] == it.miner.key.hotkey
        job_runs(it.miner, job_id, 15, attempt_no=2)
        tries = it.miner.items(f"/v1/jobs/{job_id}/attempts")
        lost, again = sorted(tries, key=lambda one: int(one["attempt_no"]))
        assert (lost["failure_code"], lost["fault"], lost["cleaned"]) == ("control_plane_lost", "nobody", True)
        assert (again["status"], lost["unconfirmed_nodes"]) == ("running", [])
        it.miner.post(f"/v1/jobs/{job_id}/cancel")
        job_over(it.miner, job_id, 10)
        check_runs(it.work, {(job_id, 1), (job_id, 2)})
        assert it.server.faults() == []


@pytest.mark.slow
def test_a_job_is_not_tried_more_often_than_the_policy_says(tmp_path: Path) -> None:
    with rig(tmp_path) as it:
        job_id = it.miner.post("/v1/jobs", it.work.spec(2, 1, 60, SLEEP_S=60, lease_id=it.lease_id))["id"]
        for attempt in (1, 2, 3):
            job_runs(it.miner, job_id, 15, attempt)
            it.server.terminate()
            assert it.server.wait(12) == 0
            assert left_of({(job_id, attempt)}, 1.0) == set()
            it.server.start()
        job = job_over(it.miner, job_id, 15)
        assert (job["status"], job["failure_code"], job["attempts"]) == ("failed", "control_plane_lost", 3)
        check_runs(it.work, {(job_id, attempt) for attempt in (1, 2, 3)})


class Stream:
    """Reads the event stream to its end, in a thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self.lines: list[str] = []
        self.error: Exception | None = None

    def __enter__(self) -> "Stream":
        self._thread.start()
        assert self._opened.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(15)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        try:
            with httpx2.stream("GET", f"{self._url}/v1/events/stream?after=0", timeout=30.0) as answer:
                for line in answer.iter_lines():
                    self._opened.set()
                    if line:
                        self.lines.append(line)
        except httpx2.TransportError as error:
            self.error = error


@contextmanager
def slow_write(server: ServerProcess, caller: Caller) -> Iterator[Callable[[], tuple[int, dict[str, Any]]]]:
    """A write whose second half is sent by the function that this gives: status and JSON of the answer."""
    body = json.dumps({"display_name": "in flight"}).encode()
    path = "/v1/providers/register"
    headers = caller.key.headers("POST", path, body, audience=AUDIENCE) | {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as link:
        link.sendall(head.encode() + b"\r\n" + body[:5])
        time.sleep(0.2)

        def finish() -> tuple[int, dict[str, Any]]:
            link.sendall(body[5:])
            answer = b"".join(iter(lambda: link.recv(65536), b""))
            first, _, rest = answer.partition(b"\r\n")
            return int(first.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])

        yield finish


@pytest.mark.slow
def test_a_disk_that_takes_no_files_ends_attempts_but_not_the_service(tmp_path: Path) -> None:
    """The gang's own report cannot be kept: the attempt is lost, its ranks end, its GPUs are free again."""
    with rig(tmp_path) as it:
        spec = it.work.spec(2, 2, 20, lease_id=it.lease_id)
        job_id = it.miner.post("/v1/jobs", spec)["id"]
        assert job_over(it.miner, job_id, 15)["status"] == "succeeded"
        it.work.runs.unlink()
        blobs, aside = it.server.data / "blobs", it.server.data / "aside"
        blobs.rename(aside)
        blobs.write_text("not a directory")
        job_id = it.miner.post("/v1/jobs", it.work.spec(2, 1, 20, lease_id=it.lease_id))["id"]
        job = job_over(it.miner, job_id, 30)
        assert (job["status"], job["failure_code"], job["attempts"]) == ("failed", "control_plane_lost", 3)
        assert left_of({(job_id, attempt) for attempt in (1, 2, 3)}) == set()
        assert it.work.ran() == []
        blobs.unlink()
        aside.rename(blobs)
        job_id = it.miner.post("/v1/jobs", spec)["id"]
        assert job_over(it.miner, job_id, 15)["status"] == "succeeded"


class PowerCut(Exception):
    """Stands for the end of the process."""


def test_a_first_start_that_was_cut_off_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide_now, decided = Writer.decide_now, []

    def cut_off(writer: Writer, submissions: Sequence[Submission]) -> None:
        if decided:
            raise PowerCut
        decided.append(submissions)
        decide_now(writer, submissions)

    async def start() -> tuple[int, str]:
        async with running(settings_of(tmp_path, "sim")) as service:
            return service.head(), service.policies()[0].digest

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "decide_now", cut_off)
        with pytest.raises(PowerCut):
            asyncio.run(start())
    assert asyncio.run(start())[0] == 3
    verify(tmp_path / "challenge.sqlite3", [])


@pytest.mark.timeout(120)
def test_three_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 3, 1.0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thirty_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 30, 2.0)
