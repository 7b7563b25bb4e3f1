"""Runs a preflight on connected nodes and writes its transcript. `docs/explanation/preflight.md` says why it is so."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypercluster.domain.jobs import preflight as rules
from hypercluster.effects.networks import NodeFailure
from hypercluster.effects.remote import wire
from hypercluster.effects.ssh import Garbled, Program, ProgramEnded, Session

NODE_US_MAX = 2**53 - 1
CONCLUSIVE = frozenset({"garbled", "missing"})  # no need to hear the others out
SETTLE_S = 0.5
IO_SHARE, STAGE_SHARE = 0.3, 0.5  # of the time that is left: a rank gives up on a neighbour before we give up on it


@dataclass(frozen=True, slots=True)
class Sizes:
    """Ring: `iterations` collectives of `buffer_bytes` each. One rank: `rounds` digests over all of it."""

    buffer_bytes: int = 64 * 1024
    iterations: int = 4
    rounds: int = 64


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one rank runs. mark: what its process carries in its environment."""

    rank: int
    session: Session
    mark: str


@dataclass(frozen=True, slots=True)
class PreflightRun:
    """A finished preflight, good or bad."""

    transcript: bytes
    verdict: rules.Verdict


@dataclass(slots=True)
class _Rank:
    seat: Seat
    seed: bytes
    answer: rules.Answer = "unheard"
    digest: str | None = None
    node_us: int | None = None
    heard_ns: int | None = None
    program: Program | None = None
    port: int = 0
    bound: bool = True

    @property
    def channel(self) -> Program:
        if self.program is None:
            raise ProgramEnded
        return self.program

    def end(self, answer: rules.Answer) -> None:
        self.answer, self.heard_ns = answer, time.monotonic_ns()


class _Failed(Exception):
    """A rank reported that it could not take part."""


class _NotThrough(Exception):
    """A stage ended without every rank; each rank's `answer` says what is known of it."""


async def run_preflight(seats: Sequence[Seat], *, marker: str, timeout_s: float, sizes: Sizes) -> PreflightRun:
    """One preflight over all seats in rank order.

    A bad answer is a verdict, not an error. Raises NodeFailure: node_lost when a connection breaks, gang_timeout
    when no rank at all came through a stage in time (then nobody can be blamed).
    """
    run = _Run(seats, marker, timeout_s, sizes)
    try:
        with suppress(_NotThrough):
            await run.play()
    finally:
        run.close()
    transcript = run.transcript()
    verdict = await asyncio.to_thread(rules.judge, transcript)
    return PreflightRun(transcript, verdict)


class _Run:
    def __init__(self, seats: Sequence[Seat], marker: str, timeout_s: float, sizes: Sizes) -> None:
        self._ranks = [_Rank(seat, secrets.token_bytes(32)) for seat in seats]
        self._marker, self._limit, self._began_ns = marker, time.monotonic() + timeout_s, time.monotonic_ns()
        ring = len(seats) > 1
        self._program = rules.RING if ring else rules.DIGEST
        self._buffer_bytes = sizes.buffer_bytes if ring else sizes.buffer_bytes * sizes.iterations
        self._iterations = sizes.iterations if ring else sizes.rounds
        self._nonce = secrets.token_bytes(32)
        self._token = secrets.token_hex(32)
        self._io_timeout_s = round(IO_SHARE * timeout_s, 3)
        self._load_us = self._elapsed_us = 0

    async def play(self) -> None:
        """All stages. The input comes last before the barrier, when nothing but the nonce is lacking any more."""
        await self._stage(self._start)
        if self._program == rules.RING:
            await self._stage(self._listen)
            await self._stage(self._join)
        inputs = await asyncio.to_thread(self._inputs)
        began = time.monotonic_ns()
        await self._stage(lambda rank: self._load(rank, inputs[rank.seat.rank]))
        self._load_us = (time.monotonic_ns() - began) // 1000
        await self._barrier()

    async def _barrier(self) -> None:
        """Release and take the time. What came before the release answers nothing: its sender did not wait."""
        firsts = [asyncio.create_task(rank.channel.receive_json()) for rank in self._ranks]
        try:
            await asyncio.sleep(0)
            early = [r for r, t in zip(self._ranks, firsts, strict=True) if t.done() and t.exception() is None]
            for rank in early:
                rank.end("early")
            if early:
                raise _NotThrough
            go = wire.pack_json({"nonce": self._nonce.hex()})
            released_ns = time.monotonic_ns()
            for rank in self._ranks:
                rank.channel.write_soon(go)
            await self._stage(lambda rank: self._answer(rank, firsts[rank.seat.rank]))
            self._elapsed_us = (max(rank.heard_ns or 0 for rank in self._ranks) - released_ns) // 1000
        finally:
            await _cancel(firsts)

    async def _stage(self, step: Callable[[_Rank], Awaitable[None]]) -> None:
        """`step` for every rank at once, within a share of the time that is left."""
        limit = time.monotonic() + STAGE_SHARE * max(0.0, self._limit - time.monotonic())
        tasks = {asyncio.create_task(self._guard(rank, step)): rank for rank in self._ranks}
        pending, cut = set(tasks), False
        try:
            while pending and (left := limit - time.monotonic()) > 0:
                done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if not cut and any(rank.answer in CONCLUSIVE for rank in self._ranks):
                    limit, cut = min(limit, time.monotonic() + SETTLE_S), True
        finally:
            await _cancel(tasks)
        if len(pending) == len(tasks):
            raise NodeFailure("gang_timeout", self._ranks[0].seat.session.node_id, 0)
        for task in pending:
            if not cut:
                tasks[task].end("missing")
        if pending or any(rank.answer not in {"unheard", "answered"} for rank in self._ranks):
            raise _NotThrough

    async def _guard(self, rank: _Rank, step: Callable[[_Rank], Awaitable[None]]) -> None:
        try:
            await step(rank)
        except Garbled:
            rank.end("garbled")
        except ProgramEnded:
            rank.end("missing")
        except _Failed:
            rank.end("failed")

    async def _start(self, rank: _Rank) -> None:
        rank.program = await rank.seat.session.start("preflight_ring", rank.seat.mark)
        await rank.program.send(
            {
                "program": self._program,
                "rank": rank.seat.rank,
                "world": len(self._ranks),
                "address": rank.seat.session.address,
                "buffer_bytes": self._buffer_bytes,
                "iterations": self._iterations,
                "io_timeout_s": self._io_timeout_s,
                "token": self._token,
            }
        )

    async def _listen(self, rank: _Rank) -> None:
        message = await _hear(rank, "port")
        port, rank.bound = message["port"], message.get("bound") is True
        if type(port) is not int or not 0 < port < 65536:
            raise Garbled
        rank.port = port

    async def _join(self, rank: _Rank) -> None:
        after = self._ranks[(rank.seat.rank + 1) % len(self._ranks)]
        host = after.seat.session.address
        if after.seat.session is rank.seat.session and not after.bound:
            host = "::1" if ":" in host else "127.0.0.1"  # a node behind translation may not reach itself from outside
        await rank.channel.send({"next": [host, after.port]})
        await _hear(rank, "joined")

    async def _load(self, rank: _Rank, data: bytes) -> None:
        for start in range(0, len(data), wire.PAYLOAD_MAX):
            await rank.channel.write(wire.pack(b"D", data[start : start + wire.PAYLOAD_MAX]))
        await _hear(rank, "ready")

    async def _answer(self, rank: _Rank, first: "asyncio.Task[dict[str, Any]]") -> None:
        message = await first
        if "error" in message:
            raise _Failed
        digest, node_us = message.get("digest"), message.get("us")
        if type(digest) is not str or not rules.is_hash(digest):
            raise Garbled
        if type(node_us) is not int or not 0 <= node_us <= NODE_US_MAX:
            raise Garbled
        rank.end("answered")
        rank.digest, rank.node_us = digest, node_us

    def _inputs(self) -> list[bytes]:
        size = rules.input_bytes(self._program, self._buffer_bytes, self._iterations)
        return [rules.expand(rank.seed, size) for rank in self._ranks]

    def transcript(self) -> bytes:
        """Canonical bytes of what was sent and seen."""
        records = tuple(
            rules.RankRecord(
                rank=rank.seat.rank,
                node_id=rank.seat.session.node_id,
                seed=rank.seed.hex(),
                answer=rank.answer,
                digest=rank.digest,
                node_us=rank.node_us,
                heard_us=None if rank.heard_ns is None else (rank.heard_ns - self._began_ns) // 1000,
            )
            for rank in self._ranks
        )
        return rules.encode(
            rules.Transcript(
                format=1,
                marker=self._marker,
                program=self._program,
                transport=rules.TRANSPORTS[self._program],
                nonce=self._nonce.hex(),
                buffer_bytes=self._buffer_bytes,
                iterations=self._iterations,
                load_us=self._load_us,
                elapsed_us=self._elapsed_us,
                ranks=records,
            )
        )

    def close(self) -> None:
        for rank in self._ranks:
            if rank.program is not None:
                rank.program.close()


async def _cancel(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _hear(rank: _Rank, key: str) -> dict[str, Any]:
    message = await rank.channel.receive_json()
    if "error" in message:
        raise _Failed
    if key not in message:
        raise Garbled
    return message
