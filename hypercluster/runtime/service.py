"""One running deployment: writer, read models, workers and files, behind the few calls that HTTP needs."""

import asyncio
import hmac
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from pydantic import BaseModel

from events import registry
from events.envelope import CommandRecord, Recorded
from events.errors import BlobMissing
from events.types.policy import Policy, PolicyAdopted
from events.types.weights import WeightsSnapshot
from hypercluster.domain import router
from hypercluster.domain.codes import CODES
from hypercluster.domain.kernel import Command, Refused
from hypercluster.domain.nodes.internal import ReclaimNode
from hypercluster.domain.policy import epochs
from hypercluster.domain.sealing import Opening
from hypercluster.effects.ssh import Ssh
from hypercluster.runtime.clock import Clock, ClockGuard
from hypercluster.runtime.mirror import Mirror
from hypercluster.runtime.settings import SIM, Settings
from hypercluster.runtime.store import Store
from hypercluster.runtime.writer import Answer, Commit, Writer
from projections.folds.policy import PolicyRecord
from projections.folds.weights import SnapshotRecord
from projections.tables import ReadView, Row

READ_WAIT_S = 5.0
RETRY_S = 0.5
PAGE = 500
DISK_RESERVE_PPM = 100_000
DISK_FREE_MIN = 16 * 1024 * 1024
DISK_LOOK_US = 500_000

log = structlog.get_logger()


class Check(NamedTuple):
    """One line of the readiness report. status: ok | degraded | unhealthy."""

    name: str
    status: str
    required: bool = True
    reason: str = ""


class Service:
    """Wires one deployment. Made by `hypercluster.runtime.start`; all methods belong to its event loop."""

    def __init__(self, settings: Settings, store: Store, ssh: Ssh, clock: Clock | None = None) -> None:
        self.settings, self.store, self.ssh = settings, store, ssh
        self.view: ReadView = store.view
        self._clock = clock or Clock()
        self._guard = ClockGuard(self._clock, store.state.at_us)
        self._policies: list[PolicyRecord] = list(store.state.policy.policies.values())
        self._snapshot: SnapshotRecord | None = store.state.weights.newest.get("newest")
        self.mirror = Mirror(store.models, self._applied)
        self.writer = Writer(store.ledger, store.state, self._guard, store.private, self.mirror.push)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: list[tuple[int, asyncio.Future[bool]]] = []
        self._disk_free, self._disk_looked_us = 0, 0
        self.draining = False
        self.stopping = asyncio.Event()
        self.failing_workers: set[str] = set()
        info = store.state.ledger.info["ledger"]
        self.profile, self.origin = info.profile, info.origin
        self.audience, self.slug, self.opened_us = info.audience, info.slug, info.opened_us

    @property
    def ssh_public_key(self) -> str:
        """What providers put into authorized_keys."""
        return self.ssh.public_key

    async def start(self) -> None:
        """Start the writer and the read models."""
        self._loop = asyncio.get_running_loop()
        self.mirror.start()
        self.writer.start()

    async def stop(self) -> None:
        """Decide what waits, write it all down, close the files."""
        self.stopping.set()
        await asyncio.to_thread(self.writer.stop)
        await asyncio.to_thread(self.mirror.stop)
        self.store.close()

    # commands

    async def submit(self, command: Command, record: CommandRecord, openings: Sequence[Opening] = ()) -> Answer:
        """Have a command decided; returns after the commit."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        self.writer.submit(command, record, openings).add_done_callback(
            lambda done: loop.call_soon_threadsafe(_settle, answered, done.result())
        )
        return await answered

    async def report(self, kind: str, body: BaseModel, *, cause: int, attempt: int = 0) -> Answer:
        """Have a worker's fact decided; tries again while the ledger takes no writes, waits for the read models."""
        while True:
            command = router.internal_command(kind, body, cause=cause, attempt=attempt, received_us=self.now_us())
            answer = await self.submit(command, router.record_of(command))
            decision = answer.decision
            retryable = isinstance(decision, Refused) and CODES[decision.code].status in (429, 503)
            if not retryable or self.stopping.is_set():
                break
            await self.sleep(RETRY_S)
        if answer.last is not None:
            await self.read_at(answer.last)
        return answer

    # reads

    def now_us(self) -> int:
        """Wall clock, microseconds since 1970."""
        return self._clock.wall_us()

    def head(self) -> int:
        """The number of the last event whose changes can be read."""
        return self.mirror.pos

    async def read_at(self, pos: int) -> bool:
        """Wait, bounded, until the read models hold this event. False when they do not get there in time."""
        return await self._reached(pos, READ_WAIT_S)

    async def wait_for_event(self, timeout_s: float, after: int | None = None) -> None:
        """Wait until an event after this number (default: the head now) can be read, or the time is over."""
        await self._reached((self.mirror.pos if after is None else after) + 1, timeout_s)

    async def _reached(self, pos: int, timeout_s: float) -> bool:
        if self.mirror.pos >= pos:
            return True
        loop = asyncio.get_running_loop()
        reached: asyncio.Future[bool] = loop.create_future()
        waiter = (pos, reached)
        self._waiters.append(waiter)
        timer = loop.call_later(timeout_s, _settle, reached, False)
        try:
            return await reached
        finally:
            timer.cancel()
            if reached.cancelled() or not reached.result():
                self._waiters = [one for one in self._waiters if one is not waiter]

    async def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the start of the shutdown."""
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return

    def policy(self) -> Policy:
        """The policy in force now."""
        now = self.now_us()
        for record in reversed(self._policies):
            if record.effective_us <= now:
                return record.policy
        return self._policies[0].policy

    def policies(self) -> Sequence[PolicyRecord]:
        """Every adopted policy, oldest first."""
        return self._policies

    def epoch(self) -> int:
        """The number of the current epoch."""
        return epochs.epoch_of(self._policies, self.now_us())

    def snapshot(self) -> SnapshotRecord | None:
        """The newest weight snapshot."""
        return self._snapshot

    def active_leases(self) -> Iterator[Row]:
        """All active leases, oldest first."""
        return self.all_rows("lease", {"status": "active"})

    def all_rows(self, table: str, where: Mapping[str, str | int], after: int = 0) -> Iterator[Row]:
        """Every row that matches, page by page, after a cursor."""
        while rows := self.view.find(table, where, after=after, limit=PAGE):
            yield from rows
            after = rows[-1].created

    def private(self, commitment: str) -> str | None:
        """The private value behind a commitment, or None where it was deleted."""
        return self.store.private.get(commitment)

    def private_salt(self, body: bytes) -> bytes:
        """The salt for a body that brings none: the same body gets the same, so that a repeat can be recognised."""
        return hmac.digest(self.store.salt_key, body, "sha256")

    async def keep(self, data: bytes, *, private: bool) -> str:
        """Store bytes durably; returns their digest."""
        return await asyncio.to_thread(self.store.blobs.put, data, private=private)

    async def blob(self, digest: str) -> bytes | None:
        """Stored bytes, or None where they are gone. Who may see private ones is for the caller to know."""
        try:
            return await asyncio.to_thread(self.store.blobs.get, digest)
        except BlobMissing:
            return None

    def checkpoint(self) -> str:
        """The newest signed checkpoint."""
        return self.store.ledger.checkpoint()

    def events(self, numbers: Sequence[int]) -> list[Recorded]:
        """The events with these numbers that exist."""
        found = (self.store.reader.entries(pos - 1, 1) for pos in numbers)
        return [registry.decode(*entries[0]) for entries in found if entries]

    def event_page(self, after: int, limit: int) -> list[Recorded]:
        """Consecutive events after a number, none beyond `head`."""
        entries = self.store.reader.entries(after, limit)
        return [registry.decode(pos, entry) for pos, entry in entries if pos <= self.mirror.pos]

    async def follow(self, after: int) -> AsyncIterator[Recorded]:
        """Every event after a number, as they come, until the service stops."""
        while not self.stopping.is_set():
            page = self.event_page(after, 200)
            for recorded in page:
                yield recorded
                after = recorded.pos
            if not page:
                await self.wait_for_event(1.0, after)

    # readiness

    def readiness(self) -> list[Check]:
        """The checks behind /health and /ready, in their fixed order."""
        checks = [
            _check("database", self.writer.blocked or self.mirror.fault or self._disk_fault()),
            _check("not_draining", "draining" if self.draining or self.stopping.is_set() else None),
        ]
        if self.settings.combined_worker:
            failing = ", ".join(sorted(self.failing_workers))
            checks.append(_check("worker", f"failing: {failing}" if failing else None))
        return checks

    def disk_is_short(self) -> bool:
        """Whether less than a tenth of the ledger's disk is left: jobs are refused then, the ledger keeps working."""
        if self.profile == SIM:
            return False
        usage = shutil.disk_usage(self.store.directory)
        return usage.free * 1_000_000 < usage.total * DISK_RESERVE_PPM

    def _disk_fault(self) -> str | None:
        now_us = self._clock.monotonic_us()
        if now_us - self._disk_looked_us > DISK_LOOK_US or not self._disk_looked_us:
            self._disk_free, self._disk_looked_us = shutil.disk_usage(self.store.directory).free, now_us
        return "the ledger's disk is full" if self._disk_free < DISK_FREE_MIN else None

    def set_draining(self, draining: bool) -> None:
        """Enter or leave drain mode: no writes are taken, workers finish what runs."""
        self.draining = draining

    async def idle_reclaim(self, *, liveness_seconds: int, age_seconds: int | None) -> dict[str, Any]:
        """Sim only: take nodes offline that were silent for longer, after pretending further silence."""
        aged_us = (age_seconds or 0) * 1_000_000
        nodes = list(self.all_rows("node", {}))
        offline = 0
        for row in nodes:
            body = ReclaimNode(node_id=row.record.node_id, limit_us=liveness_seconds * 1_000_000, aged_us=aged_us)
            answer = await self.report("node.reclaim", body, cause=row.pos, attempt=self.head())
            offline += answer.first is not None
        return {
            "age_heartbeats_seconds": age_seconds,
            "liveness_seconds": liveness_seconds,
            "nodes_aged": len(nodes) if age_seconds else 0,
            "offline_marked": offline,
            "protected_node_ids": sorted(row.record.node_id for row in nodes if row.record.held_by),
        }

    def _applied(self, commit: Commit) -> None:
        """Called in the read models' thread."""
        for recorded in commit.recorded:
            if isinstance(recorded.event, WeightsSnapshot):
                self._snapshot = SnapshotRecord(recorded.event, recorded.pos, recorded.at_us)
            elif isinstance(recorded.event, PolicyAdopted):
                event = recorded.event
                record = PolicyRecord(event.digest, event.effective_us, recorded.pos, event.policy)
                self._policies = [*self._policies, record]
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Let those go on whose event can be read now. Belongs to the event loop."""
        pos, waiting = self.mirror.pos, self._waiters
        self._waiters = [one for one in waiting if one[0] > pos]
        for wanted, future in waiting:
            if wanted <= pos:
                _settle(future, True)


def _settle[T](future: asyncio.Future[T], result: T) -> None:
    """Give the result, unless nobody waits for it any more."""
    if not future.done():
        future.set_result(result)


def _check(name: str, fault: str | None) -> Check:
    return Check(name, "unhealthy" if fault else "ok", True, fault or "")
