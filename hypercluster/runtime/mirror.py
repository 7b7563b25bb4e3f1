"""Keeps the read models level with the ledger: one thread that applies committed groups, then wakes who waits."""

import queue
import threading
from collections.abc import Callable

import structlog

from hypercluster.runtime.writer import Commit
from projections.tables import ReadModels

log = structlog.get_logger()


class Mirror:
    """Owns the read models' writing side. `on_applied` is called in this thread with every applied commit."""

    def __init__(self, models: ReadModels, on_applied: Callable[[Commit], None]) -> None:
        self._models, self._on_applied = models, on_applied
        self._queue: queue.SimpleQueue[Commit | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="read-models", daemon=True)
        self.pos = models.position()
        self.fault: str | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def push(self, commit: Commit) -> None:
        """Queue a committed group. Never blocks the writer."""
        self._queue.put(commit)

    def stop(self) -> None:
        """Apply what waits, then end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._models.close()

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            if self.fault is None:
                self._apply(commit)

    def _apply(self, commit: Commit) -> None:
        try:
            self._models.apply(commit.changes, commit.recorded, commit.pos)
        except Exception as error:  # halt at this position, never skip: the next start catches up or rebuilds
            self.fault = f"read models stopped at event {self.pos}: {error}"
            log.exception("read_models_stopped", pos=self.pos)
            return
        self.pos = commit.pos
        self._on_applied(commit)
