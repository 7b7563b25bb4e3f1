"""What every worker is: a loop that looks at the read models, does something outside, and reports the fact.

A worker decides nothing. It may be stopped at any moment and goes on from the ledger alone.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger()

RESTART_S = 1.0

type Loop = Callable[[], Awaitable[None]]


class Supervisor:
    """Runs workers as tasks. One that fails is logged, counted and started again; `failing` names it meanwhile."""

    def __init__(self, failing: set[str]) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.failing = failing
        self.failures = 0

    def start(self, name: str, loop: Loop) -> None:
        """Start a worker under this name."""
        self._tasks[name] = asyncio.create_task(self._supervise(name, loop), name=name)

    async def stop(self) -> None:
        """Cancel all workers and wait until they have ended."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _supervise(self, name: str, loop: Loop) -> None:
        while True:
            try:
                await loop()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # a worker's fault must not end the service; it is visible in /ready
                self.failing.add(name)
                self.failures += 1
                log.exception("worker_failed", worker=name, error=str(error))
                await asyncio.sleep(RESTART_S)
            else:
                self.failing.discard(name)
