"""One attempt on real nodes: connect, preflight, the user's entrypoint on every rank, collect.

Whatever happens, nothing outlives the attempt on a node: agents there end their ranks when they are told to, when the
connection drops, and when the lease is no longer renewed. Failure codes are those of the policy.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from hypercluster.effects.networks import NodeFailure
from hypercluster.effects.plan import (
    GangOutcome,
    GangPlan,
    GangTrace,
    NodeTarget,
    Place,
    RankOutput,
    RunningFacts,
    mark_of,
    places,
    rank_env,
    tag_of,
)
from hypercluster.effects.preflight import PreflightRun, Seat, run_preflight
from hypercluster.effects.ranks import RankRun
from hypercluster.effects.remote import wire
from hypercluster.effects.ssh import Garbled, Program, ProgramEnded, Session, Ssh

__all__ = [
    "GangOutcome",
    "GangPlan",
    "GangTrace",
    "NodeTarget",
    "RankOutput",
    "RunningFacts",
    "clean_gang",
    "run_gang",
]

SETTLE_S = 0.5  # a lost node shows about as fast as its peers fail because of it; the loss is the cause
KILL_S = 7.0  # beyond the grace: time that a node has to kill, look again and answer
RUNTIME_CHECK_S = 10.0
RUNTIMES = (("docker", "version"), ("podman", "version"))
SUPPORTED_RUNTIMES: frozenset[str] = frozenset()  # no launcher for containers yet: production refuses every node


async def run_gang(
    plan: GangPlan,
    *,
    ssh: Ssh,
    on_running: Callable[[RunningFacts], Awaitable[bool]],
    on_collecting: Callable[[], Awaitable[None]],
    stop: asyncio.Event,
) -> GangOutcome:
    """Carry out one attempt. A failure is an outcome, not an error.

    The entrypoint is released on every rank, or on none, after `on_running` has returned True. `on_collecting` is
    awaited when every rank has exited with 0. `stop` ends the attempt as "cancelled". Output above the cap is cut and
    marked, which is no failure.
    """
    gang = _Gang(plan, ssh)
    failure: NodeFailure | None = None
    try:
        await gang.prepare(stop)
        if not await on_running(gang.facts()):
            raise NodeFailure("cancelled")
        await gang.main(stop)
        await on_collecting()
    except NodeFailure as seen:
        failure = seen
    finally:
        await gang.close()
    return gang.outcome(failure)


class _Gang:
    def __init__(self, plan: GangPlan, ssh: Ssh) -> None:
        self._plan, self._ssh = plan, ssh
        self._places = tuple(places(plan.nodes))
        self._sessions: dict[int, Session] = {}
        self._keepers: dict[int, Program] = {}
        self._ranks: list[RankRun] = []
        self._renewing: asyncio.Task[None] | None = None
        self._renewal_gap_s = 0.0
        self._master = ("", 0)
        self._preflight: PreflightRun | None = None
        self._phase = "connect"

    async def prepare(self, stop: asyncio.Event) -> None:
        """Everything before the entrypoint, within gang_timeout_s. Raises NodeFailure."""
        limit = time.monotonic() + self._plan.gang_timeout_s
        try:
            async with asyncio.timeout(self._plan.gang_timeout_s):
                await _unless(stop, self._prepare(limit))
        except TimeoutError:
            raise NodeFailure("gang_timeout", self._first_missing()) from None

    async def _prepare(self, limit: float) -> None:
        indices = range(len(self._plan.nodes))
        await _all(self._connect(index) for index in indices)
        await _all(self._keep(index) for index in indices)
        self._renewing = asyncio.create_task(self._renew())
        self._phase = "preflight"
        await self._prove(limit)
        tag = tag_of(self._plan.marker)
        self._ranks = [RankRun(place, self._plan.output_cap_bytes) for place in self._places]
        await _all(
            run.start(self._sessions[run.place.node_index], self._order(run.place, tag), self._mark(run.place))
            for run in self._ranks
        )

    def _first_missing(self) -> str | None:
        missing = [node.node_id for index, node in enumerate(self._plan.nodes) if index not in self._sessions]
        return missing[0] if missing else None

    def _mark(self, place: Place) -> str:
        return mark_of(self._plan.marker, place.node_index)

    async def _connect(self, index: int) -> None:
        node = self._plan.nodes[index]
        session = await self._ssh.connect(node.node_id, node.endpoint, node.user, node.host_key)
        self._sessions[index] = session
        if self._plan.profile != "sim":
            await _check_runtime(session)

    async def _keep(self, index: int) -> None:
        """Start the node's agent and learn a free port there."""
        session, mark = self._sessions[index], mark_of(self._plan.marker, index)
        keeper = self._keepers[index] = await session.start("node_agent", f"{mark}/agent")
        order = {
            "tag": tag_of(self._plan.marker),
            "mark": mark,
            "address": session.address,
            "stale_s": self._plan.lease_stale_s,
            "grace_s": self._plan.kill_grace_s,
        }
        try:
            await keeper.send(order)
            port = (await keeper.receive_json()).get("port")
        except (ProgramEnded, Garbled):
            raise NodeFailure("rank_missing", session.node_id) from None
        if type(port) is not int or not 0 < port < 65536:
            raise NodeFailure("rank_missing", session.node_id)
        if session.node_id == self._plan.master_node:
            self._master = (session.address, port)

    async def _renew(self) -> None:
        frame = wire.pack_json({"renew": True})
        last = time.monotonic()
        while True:
            now = time.monotonic()
            self._renewal_gap_s, last = max(self._renewal_gap_s, now - last), now
            for keeper in self._keepers.values():
                keeper.write_soon(frame)
            await asyncio.sleep(self._plan.lease_renew_s)

    async def _prove(self, limit: float) -> None:
        seats = [
            Seat(place.rank, self._sessions[place.node_index], f"{self._mark(place)}/preflight-{place.rank}")
            for place in self._places
        ]
        left_s = max(0.1, limit - time.monotonic())
        run = await run_preflight(seats, marker=self._plan.marker, timeout_s=left_s, sizes=self._plan.sizes)
        self._preflight = run
        if not run.verdict.ok:
            raise NodeFailure(run.verdict.failure_code or "", run.verdict.node_id, run.verdict.rank)

    def _order(self, place: Place, tag: str) -> dict[str, Any]:
        return {
            "tag": tag,
            "mark": self._mark(place),
            "name": f"rank-{place.rank}",
            "argv": list(self._plan.entrypoint),
            "env": rank_env(self._plan, place, self._master),
            "grace_s": self._plan.kill_grace_s,
            "stale_s": self._plan.lease_stale_s,
            "cap": self._plan.output_cap_bytes,
        }

    def facts(self) -> RunningFacts:
        """What the preflight has shown."""
        if self._preflight is None:
            raise RuntimeError("the preflight comes first")
        seen = self._preflight.verdict
        return RunningFacts(seen.program, seen.transport, seen.measured_bytes_per_s, self._preflight.transcript)

    async def main(self, stop: asyncio.Event) -> None:
        """Release every rank and wait for all of them. Raises NodeFailure for the first that failed."""
        self._phase = "main"
        for run in self._ranks:
            run.release()
        reading = {asyncio.create_task(run.follow()) for run in self._ranks}
        try:
            failure = await self._watch(reading, stop)
            if failure is not None:
                for run in self._ranks:
                    run.stop()
                await asyncio.wait(reading, timeout=self._plan.kill_grace_s + KILL_S)
                raise failure
        finally:
            await _cancel(reading)
        self._phase = "collect"

    async def _watch(self, reading: set[asyncio.Task[None]], stop: asyncio.Event) -> NodeFailure | None:
        limit = time.monotonic() + self._plan.timeout_s
        stopping = asyncio.create_task(stop.wait())
        pending = set(reading)
        try:
            while pending:
                left = max(0.0, limit - time.monotonic())
                done, _ = await asyncio.wait({*pending, stopping}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                failure = self._first_failure()
                if failure is not None:
                    return await self._settle(failure, pending)
                if stopping in done:
                    return NodeFailure("cancelled")
                if not done:
                    return NodeFailure("timeout")
            return None
        finally:
            await _cancel((stopping,))

    async def _settle(self, failure: NodeFailure, pending: set[asyncio.Task[None]]) -> NodeFailure:
        if failure.code != "node_lost" and pending:
            await asyncio.wait(pending, timeout=SETTLE_S)
        lost = [run.failure for run in self._ranks if run.failure is not None and run.failure.code == "node_lost"]
        if lost:
            return lost[0]
        if self._renewal_gap_s > self._plan.lease_stale_s / 2 and any(run.unasked for run in self._ranks):
            return NodeFailure("control_plane_lost")  # we were too slow; neither the job nor the node is to blame
        return failure

    def _first_failure(self) -> NodeFailure | None:
        return next((run.failure for run in self._ranks if run.failure is not None), None)

    async def close(self) -> None:
        """End what runs on the nodes and drop the connections; what cannot be told ends by itself."""
        if self._renewing is not None:
            await _cancel((self._renewing,))
        try:
            await asyncio.gather(*(self._end(keeper) for keeper in self._keepers.values()))
        finally:
            for session in self._sessions.values():
                session.abort()

    async def _end(self, keeper: Program) -> None:
        with suppress(NodeFailure, ProgramEnded, Garbled, TimeoutError):
            async with asyncio.timeout(self._plan.kill_grace_s + KILL_S):
                await keeper.send({"end": True})
                await keeper.receive_json()
                await keeper.ended()

    def outcome(self, failure: NodeFailure | None) -> GangOutcome:
        """How it went. Ranks are listed once the entrypoint was released."""
        return GangOutcome(
            phase=self._phase,
            failure_code=None if failure is None else failure.code,
            node_id=None if failure is None else failure.node_id,
            rank=None if failure is None else failure.rank,
            transcript=None if self._preflight is None else self._preflight.transcript,
            ranks=tuple(run.output() for run in self._ranks) if self._phase in {"main", "collect"} else (),
        )


async def _check_runtime(session: Session) -> None:
    for command in RUNTIMES:
        status, _ = await session.run(command, RUNTIME_CHECK_S)
        if status == 0 and command[0] in SUPPORTED_RUNTIMES:
            return
    raise NodeFailure("container_runtime_missing", session.node_id)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run at once; the first failure cancels the others and is raised."""
    tasks = [asyncio.create_task(item) for item in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await _cancel(tasks)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; raise NodeFailure("cancelled") when `stop` is set before it is through."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise NodeFailure("cancelled")
        working.result()
    finally:
        await _cancel((working, stopping))


async def _cancel(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def clean_gang(plan: GangPlan | GangTrace, *, ssh: Ssh, deadline_s: float) -> tuple[str, ...]:
    """End whatever carries the attempt's marker on its nodes and remove its directories. Idempotent.

    Returns the ids of the nodes that could not be asked within `deadline_s`, or where something is left.
    """
    clean = await asyncio.gather(*(_clean_node(plan, node, ssh, deadline_s) for node in plan.nodes))
    return tuple(node.node_id for node, done in zip(plan.nodes, clean, strict=True) if not done)


async def _clean_node(plan: GangPlan | GangTrace, node: NodeTarget, ssh: Ssh, deadline_s: float) -> bool:
    tag = tag_of(plan.marker)
    order = {"tag": tag, "mark": tag, "grace_s": min(plan.kill_grace_s, deadline_s / 3)}
    try:
        async with (
            asyncio.timeout(deadline_s),
            ssh.session(node.node_id, node.endpoint, node.user, node.host_key) as session,
        ):
            sweep = await session.start("sweep")
            await sweep.send(order)
            return (await sweep.receive_json()).get("left") == 0
    except (NodeFailure, ProgramEnded, Garbled, TimeoutError):
        return False
