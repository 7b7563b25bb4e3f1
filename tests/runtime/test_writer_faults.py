"""The writer's thread answers whatever happens around it: callers that leave, and a ledger that cannot go on."""

import asyncio
from pathlib import Path

from events.errors import LedgerDamaged
from hypercluster.domain import router
from hypercluster.domain.kernel import Accepted, Command, Refused
from hypercluster.domain.weights.internal import TakeSnapshot
from hypercluster.runtime.service import Service
from hypercluster.runtime.start import running
from tests.support.serving import settings_of


def snapshot(service: Service, attempt: int) -> Command:
    body = TakeSnapshot(epoch=service.epoch())
    return router.internal_command(
        "weights.snapshot", body, cause=service.head(), attempt=attempt, received_us=service.now_us()
    )


def test_a_caller_that_leaves_takes_nothing_with_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(settings_of(tmp_path, "sim")) as service:
            for attempt in range(20):
                command = snapshot(service, attempt)
                caller = asyncio.create_task(service.submit(command, router.record_of(command)))
                await asyncio.sleep(0)
                caller.cancel()
                await asyncio.gather(caller, return_exceptions=True)
            last = snapshot(service, 99)
            async with asyncio.timeout(5):
                answer = await service.submit(last, router.record_of(last))
            assert isinstance(answer.decision, Accepted)

    asyncio.run(play())


def test_a_ledger_that_cannot_go_on_is_said_to_be_so(tmp_path: Path) -> None:
    """After a commit whose outcome is unknown every write is refused, and readiness tells."""

    async def play() -> None:
        async with running(settings_of(tmp_path, "sim")) as service:
            service.store.ledger._fault = LedgerDamaged("it is unknown what a failed commit left on disk")
            for attempt in range(3):
                command = snapshot(service, attempt)
                async with asyncio.timeout(5):
                    answer = await service.submit(command, router.record_of(command))
                assert isinstance(answer.decision, Refused) and answer.decision.code == "not_ready"
            database = service.readiness()[0]
            assert (database.name, database.status) == ("database", "unhealthy")
            assert "until a restart" in database.reason
            assert service.head() == 3

    asyncio.run(play())


def test_what_comes_after_the_end_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(settings_of(tmp_path, "sim")) as service:
            command = snapshot(service, 1)
        async with asyncio.timeout(5):
            answer = await service.submit(command, router.record_of(command))
        assert isinstance(answer.decision, Refused) and answer.decision.code == "not_ready"

    asyncio.run(play())
