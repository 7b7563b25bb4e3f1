"""Launches placed attempts on their nodes, stops those that ended, cleans up after all of them.

An attempt that was placed before this process started is never launched or adopted: it is reported lost, and whatever
it left on its nodes is killed.
"""

import asyncio
from collections.abc import Coroutine

import structlog

from hypercluster.domain.jobs.internal import (
    AttemptIsClean,
    AttemptIsCollecting,
    AttemptIsOver,
    AttemptIsRunning,
    RankReport,
    ScoreAttempt,
)
from hypercluster.domain.kernel import Accepted
from hypercluster.effects.gang import GangOutcome, GangPlan, RunningFacts, clean_gang, run_gang
from hypercluster.runtime.plans import gang_plan
from hypercluster.runtime.service import Service
from projections.folds.jobs import TERMINAL, Attempt

log = structlog.get_logger()

LIVE = ("provisioning", "running", "collecting")
CLEAN_DEADLINE_S = 20.0
IDLE_S = 0.5
STOP_S = 20.0  # the longest that a node may take to end its ranks, and some room for a report


class Attempts:
    """The gangs of this process, by "<job_id>/<attempt_no>"."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._first = service.head() + 1
        self._gangs: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Event] = {}
        self._launched: set[str] = set()
        self._reporting: set[str] = set()

    async def watch(self) -> None:
        """One pass: launch what was placed, stop what ended, clean up what is over, have it scored."""
        seen = self._service.head()  # what happens during the pass is looked at in the next one, at once
        for status in LIVE:
            for row in self._service.all_rows("attempt", {"status": status}):
                await self._look_at(row.record)
        for row in self._service.all_rows("attempt", {"cleaned": 0}):
            if row.record.status in TERMINAL:
                self._end(row.record)
        for row in self._service.all_rows("job", {"status": "scoring"}):
            await self._score(row.record.job_id, row.record.attempts)
        await self._service.wait_for_event(IDLE_S, seen)

    async def stop(self) -> None:
        """Kill every gang, but hear out those that are over. What they leave on nodes is cleaned at the next start."""
        tasks = dict(self._gangs)
        for key, task in tasks.items():
            if key not in self._reporting:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks.values(), timeout=STOP_S)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _look_at(self, attempt: Attempt) -> None:
        key = _key(attempt)
        if key in self._gangs:
            return
        if attempt.placed_pos >= self._first and key not in self._launched:
            self._launched.add(key)  # an attempt is launched once, however late the read models are
            self._start(key, self._launch(attempt))
        else:  # of an earlier process, or its gang failed here; where only the read models are late it is refused
            await self._report_lost(attempt)

    def _end(self, attempt: Attempt) -> None:
        key = _key(attempt)
        if key in self._stops:
            self._stops[key].set()
        elif key not in self._gangs:
            self._start(key, self._clean(attempt))

    def _start(self, key: str, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work, name=f"attempt {key}")
        self._gangs[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: str, task: asyncio.Task[None]) -> None:
        self._gangs.pop(key, None)
        self._stops.pop(key, None)
        self._reporting.discard(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("attempt_failed", attempt=key, error=repr(error))

    async def _launch(self, attempt: Attempt) -> None:
        stop = self._stops[_key(attempt)] = asyncio.Event()
        plan = gang_plan(self._service, attempt)

        async def on_running(facts: RunningFacts) -> bool:
            return await self._report_running(attempt, facts)

        async def on_collecting() -> None:
            body = AttemptIsCollecting(job_id=attempt.job_id, attempt_no=attempt.attempt_no)
            await self._service.report("attempt.collect", body, cause=attempt.placed_pos)

        outcome = await run_gang(
            plan, ssh=self._service.ssh, on_running=on_running, on_collecting=on_collecting, stop=stop
        )
        self._reporting.add(_key(attempt))
        await self._report_over(attempt, outcome)
        self._reporting.discard(_key(attempt))
        if not self._service.stopping.is_set():
            await self._clean_nodes(attempt, plan)

    async def _clean(self, attempt: Attempt) -> None:
        await self._clean_nodes(attempt, gang_plan(self._service, attempt))

    async def _clean_nodes(self, attempt: Attempt, plan: GangPlan) -> None:
        unconfirmed = await clean_gang(plan, ssh=self._service.ssh, deadline_s=CLEAN_DEADLINE_S)
        body = AttemptIsClean(job_id=attempt.job_id, attempt_no=attempt.attempt_no, unconfirmed=unconfirmed)
        await self._service.report("attempt.clean", body, cause=attempt.placed_pos)

    async def _report_running(self, attempt: Attempt, facts: RunningFacts) -> bool:
        body = AttemptIsRunning(
            job_id=attempt.job_id,
            attempt_no=attempt.attempt_no,
            program=facts.program,
            transport=facts.transport,
            measured_bytes_per_s=facts.measured_bytes_per_s,
            transcript=await self._service.keep(facts.transcript, private=False),
        )
        answer = await self._service.report("attempt.run", body, cause=attempt.placed_pos)
        return isinstance(answer.decision, Accepted) and answer.first is not None

    async def _report_over(self, attempt: Attempt, outcome: GangOutcome) -> None:
        keep = self._service.keep
        transcript = None if outcome.transcript is None else await keep(outcome.transcript, private=False)
        ranks = tuple(
            [
                RankReport(
                    rank=rank.rank,
                    exit_code=rank.exit_code,
                    stdout=await keep(rank.stdout, private=True),
                    stdout_bytes=rank.stdout_bytes,
                    stderr=await keep(rank.stderr, private=True),
                    stderr_bytes=rank.stderr_bytes,
                    truncated=rank.truncated,
                )
                for rank in outcome.ranks
            ]
        )
        body = AttemptIsOver(
            job_id=attempt.job_id,
            attempt_no=attempt.attempt_no,
            phase=outcome.phase,
            failure_code=outcome.failure_code,
            node_id=outcome.node_id,
            rank=outcome.rank,
            transcript=transcript,
            ranks=ranks,
        )
        await self._service.report("attempt.end", body, cause=attempt.placed_pos)

    async def _report_lost(self, attempt: Attempt) -> None:
        body = AttemptIsOver(
            job_id=attempt.job_id,
            attempt_no=attempt.attempt_no,
            phase="main" if attempt.started_us is not None else "preflight",
            failure_code="control_plane_lost",
        )
        await self._service.report("attempt.end", body, cause=attempt.placed_pos)

    async def _score(self, job_id: str, attempt_no: int) -> None:
        body = ScoreAttempt(job_id=job_id, attempt_no=attempt_no)
        attempt = self._service.view.get("attempt", f"{job_id}/{attempt_no}")
        if attempt is not None and attempt.ended_pos is not None:
            await self._service.report("attempt.score", body, cause=attempt.ended_pos)


def _key(attempt: Attempt) -> str:
    return f"{attempt.job_id}/{attempt.attempt_no}"
