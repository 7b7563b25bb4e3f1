"""What HTTP asks of the running service. `hypercluster.runtime.service.Service` is the one that serves."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from events.envelope import CommandRecord, Recorded
from hypercluster.domain.kernel import Command, Decision
from hypercluster.domain.sealing import Opening
from projections.folds.policy import PolicyRecord
from projections.folds.weights import SnapshotRecord
from projections.tables import ReadView


class Answer(Protocol):
    """What was decided. first and last: numbers of the events it is recorded in, None where it is unrecorded."""

    @property
    def decision(self) -> Decision: ...
    @property
    def first(self) -> int | None: ...
    @property
    def last(self) -> int | None: ...


class Check(Protocol):
    """One line of the readiness report. status: ok | degraded | unhealthy."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def required(self) -> bool: ...
    @property
    def reason(self) -> str: ...


class Settings(Protocol):
    """What of the settings shows on the wire."""

    @property
    def version(self) -> str: ...
    @property
    def shared_token(self) -> str | None: ...


class Service(Protocol):
    """A running deployment. All methods belong to its event loop; those that are not async return at once."""

    profile: str
    audience: str
    slug: str
    origin: str
    draining: bool
    stopping: asyncio.Event

    @property
    def settings(self) -> Settings: ...
    @property
    def view(self) -> ReadView: ...
    @property
    def ssh_public_key(self) -> str: ...

    async def submit(self, command: Command, record: CommandRecord, openings: Sequence[Opening] = ()) -> Answer:
        """Have a command decided; returns after the commit."""

    def now_us(self) -> int:
        """Wall clock, microseconds since 1970."""

    def head(self) -> int:
        """The number of the last event whose changes can be read."""

    async def read_at(self, pos: int) -> bool:
        """Wait, bounded, until the read models hold this event."""

    async def wait_for_event(self, timeout_s: float, after: int | None = None) -> None:
        """Wait until an event after this number can be read, or the time is over."""

    def readiness(self) -> Sequence[Check]:
        """The checks behind /health and /ready, in their fixed order."""

    def disk_is_short(self) -> bool:
        """Whether no more jobs are taken for lack of disk space."""

    def policies(self) -> Sequence[PolicyRecord]:
        """Every adopted policy, oldest first."""

    def snapshot(self) -> SnapshotRecord | None:
        """The newest weight snapshot, from memory."""

    def checkpoint(self) -> str:
        """The newest signed checkpoint."""

    def private(self, commitment: str) -> str | None:
        """The private value behind a commitment, or None where it was deleted."""

    def private_salt(self, seed: bytes) -> bytes:
        """A salt for a body that brings none: the same for the same seed, and only this server can make it."""

    async def keep(self, data: bytes, *, private: bool) -> str:
        """Store bytes durably; returns their digest."""

    async def blob(self, digest: str) -> bytes | None:
        """Stored bytes, or None where they are gone."""

    def events(self, numbers: Sequence[int]) -> list[Recorded]:
        """The events with these numbers that exist."""

    def event_page(self, after: int, limit: int) -> list[Recorded]:
        """Consecutive events after a number, none beyond `head`."""

    def set_draining(self, draining: bool) -> None:
        """Enter or leave drain mode."""

    async def idle_reclaim(self, *, liveness_seconds: int, age_seconds: int | None) -> Mapping[str, Any]:
        """Sim only: take silent nodes offline now; the fields of the answer."""
