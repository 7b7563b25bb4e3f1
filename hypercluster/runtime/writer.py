"""The one writer: takes waiting commands in groups, decides them, commits once, then answers.

Nothing is answered before it is durable, nothing is folded that is not committed: a refused command, and a whole group
whose commit fails, are rolled back through the state's journal.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import structlog

from events.envelope import CommandRecord, Event, Recorded
from events.errors import CodecError, CommandRepeated, DiskFull, EventTooLarge, LedgerError
from events.ledger import Batch, Ledger
from events.private import PrivateStore, PrivateValue
from hypercluster.domain import recording, router
from hypercluster.domain.deciding import decide
from hypercluster.domain.identity import gate
from hypercluster.domain.kernel import RULES, Accepted, Command, Context, Decision, Refused
from hypercluster.domain.sealing import Opening
from hypercluster.runtime.clock import ClockGuard
from hypercluster.runtime.loose_nonces import LooseNonces
from projections.fold import State, evolve
from projections.state import Changes

GROUP_MAX = 1000
QUEUE_MAX = 10_000
SNAPSHOT = "weights.snapshot"
ACCEPT_CLOCK = "clock.accept"
_STOPPED = Refused("not_ready", "the server stops")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """What was decided. first and last: numbers of the events it is recorded in, None where it is unrecorded."""

    decision: Decision
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class Submission:
    """A command on its way through the writer. openings: the private values behind its commitments."""

    command: Command
    record: CommandRecord
    openings: tuple[Opening, ...] = ()
    future: Future[Answer] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed group, for the read models and subscribers."""

    changes: Changes
    recorded: Sequence[Recorded]
    pos: int


@dataclass(slots=True)
class _Group:
    """Answers and events of the group that is being decided."""

    batch: Batch
    context: Context
    answers: list[tuple[Submission, Answer]] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    private: list[PrivateValue] = field(default_factory=list)


class Writer:
    """Owns the ledger and the fold state. Started once; `submit` may be called from any thread."""

    def __init__(
        self,
        ledger: Ledger,
        state: State,
        guard: ClockGuard,
        private: PrivateStore,
        on_commit: Callable[[Commit], None],
    ) -> None:
        self._ledger, self._state, self._guard = ledger, state, guard
        self._private, self._on_commit = private, on_commit
        self._queue: queue.Queue[Submission | None] = queue.Queue(QUEUE_MAX)
        self._nonces = LooseNonces()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._stopped = False
        self.fault: str | None = None
        self.groups = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def decide_now(self, submissions: Sequence[Submission]) -> None:
        """Decide a group in the calling thread; only before `start`."""
        self._process(submissions)

    def stop(self) -> None:
        """Decide what waits, then end the thread. What comes later is refused."""
        self._stopped = True
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._refuse_rest()
        self._idle()

    @property
    def blocked(self) -> str | None:
        """Why no write is taken at the moment, or None."""
        return self._guard.fault or self.fault

    def submit(self, command: Command, record: CommandRecord, openings: Sequence[Opening] = ()) -> Future[Answer]:
        """Queue a command. The future gives its answer after the commit."""
        submission = Submission(command, record, tuple(openings))
        submission.future.set_running_or_notify_cancel()  # who stops waiting cannot take it back
        if self._stopped:
            submission.future.set_result(Answer(_STOPPED))
            return submission.future
        try:
            self._queue.put_nowait(submission)
        except queue.Full:
            submission.future.set_result(Answer(Refused("overloaded", "too many commands are waiting")))
        return submission.future

    def _refuse_rest(self) -> None:
        while True:
            try:
                submission = self._queue.get_nowait()
            except queue.Empty:
                return
            if submission is not None:
                submission.future.set_result(Answer(_STOPPED))

    def _run(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=1.0)
            except queue.Empty:
                self._idle()
                continue
            waiting, ended = self._drain(first)
            for run in _runs(waiting):
                self._process(run)
            if ended:
                return

    def _drain(self, first: Submission | None) -> tuple[list[Submission], bool]:
        waiting: list[Submission] = []
        found = first
        while found is not None and len(waiting) < GROUP_MAX:
            waiting.append(found)
            try:
                found = self._queue.get_nowait()
            except queue.Empty:
                return waiting, False
        if found is not None:
            waiting.append(found)
        return waiting, found is None

    def _idle(self) -> None:
        try:
            self._ledger.idle()
        except LedgerError as error:
            log.warning("ledger_idle_failed", error=str(error))

    def _process(self, submissions: Sequence[Submission]) -> None:
        mark = self._state.mark()
        try:
            if self.fault is None:
                self._finish(self._decide_all(submissions, mark))
                return
        except Exception as error:  # what is on disk is not known: a restart reads it; until then the thread answers
            self._state.rollback(mark)
            log.exception("writer_stopped", commands=len(submissions), error=str(error))
            self.fault = f"the ledger takes no writes until a restart: {error}"
        for submission in submissions:
            if not submission.future.done():
                submission.future.set_result(Answer(Refused("not_ready", self.fault)))

    def _decide_all(self, submissions: Sequence[Submission], mark: tuple[int, int, int]) -> _Group:
        """Decide and commit."""
        at_us = self._guard.now_us()
        context = Context(at_us=at_us, size=self._ledger.size, root=self._ledger.root().hex())
        group = _Group(self._ledger.batch(at_us), context)
        for submission in submissions:
            group.answers.append((submission, self._take(group, submission)))
        if group.recorded:
            fault = self._commit(group)
            if fault is not None:
                self._state.rollback(mark)
                group.answers = [(submission, Answer(fault)) for submission in submissions]
        return group

    def _take(self, group: _Group, submission: Submission) -> Answer:
        command = submission.command
        if self.blocked is not None and command.kind != ACCEPT_CLOCK:
            return Answer(Refused("not_ready", self.blocked))
        if command.nonce is not None and (seen := self._nonces.find(command.actor, command.nonce)) is not None:
            return Answer(Refused("nonce_replay", "this nonce was used", seq=seen))
        mark = self._state.mark(), group.batch.mark(), len(group.recorded)
        try:
            return self._decide(group, submission)
        except CommandRepeated as error:
            self._undo(group, mark)
            return Answer(Refused("nonce_replay", "this command is recorded already", seq=error.pos))
        except (CodecError, EventTooLarge) as error:
            self._undo(group, mark)
            return Answer(Refused("entry_too_large", str(error)))
        except Exception as error:  # a decision that cannot be folded must never reach the ledger, whatever went wrong
            self._undo(group, mark)
            log.exception("command_failed", kind=command.kind, actor=command.actor, error=str(error))
            return Answer(Refused("internal_fault", "the command could not be applied"))

    def _undo(self, group: _Group, mark: tuple[tuple[int, int, int], int, int]) -> None:
        state_mark, batch_mark, events = mark
        self._state.rollback(state_mark)
        group.batch.rollback(batch_mark)
        del group.recorded[events:]

    def _decide(self, group: _Group, submission: Submission) -> Answer:
        command = submission.command
        decision = decide(self._state, command, group.context)
        events = recording.events_of(self._state, command, decision, group.context.at_us)
        if not events:
            return self._unrecorded(command, decision, group.context.at_us)
        recorded = self._record(group, submission, events)
        if isinstance(decision, Accepted):
            group.private += _private_values(submission, decision.subject)
        return Answer(decision, recorded[0].pos, recorded[-1].pos)

    def _unrecorded(self, command: Command, decision: Decision, at_us: int) -> Answer:
        """An answer without an event. What was decided keeps its nonce in memory, while its timestamp could pass."""
        if command.origin == "internal" or recording.is_undecided(decision):
            return Answer(decision)
        if isinstance(decision, Refused) and gate.budget_empty(self._state, command.actor, at_us):
            return Answer(Refused("too_many_refusals", "this hotkey's budget for recorded refusals is empty"))
        if command.nonce is not None:
            self._nonces.keep(command.actor, command.nonce, self._state.pos, command.received_us)
        return Answer(decision)

    def _record(self, group: _Group, submission: Submission, events: Sequence[Event]) -> list[Recorded]:
        command, record = submission.command, submission.record
        recorded = group.batch.add(
            events,
            cmd=command.digest,
            cmd_ms=router.request_ms(record),
            actor=command.actor,
            rules=RULES,
            command=record,
        )
        for one in recorded:
            evolve(self._state, one)
        group.recorded += recorded
        return recorded

    def _commit(self, group: _Group) -> Refused | None:
        """Make the group durable: private values first, then the ledger. Returns why it could not be."""
        try:
            self._private.put(group.private)
            self._ledger.commit(group.batch)
        except DiskFull as error:
            log.error("disk_full", error=str(error))
            return Refused("disk_full", str(error))
        except LedgerError as error:
            log.error("commit_failed", error=str(error))
            return Refused("not_ready", str(error))
        self.groups += 1
        self._guard.last_event_us = group.batch.at_us
        return None

    def _finish(self, group: _Group) -> None:
        committed = group.recorded if self._state.pos == self._ledger.size else []
        changes = self._state.journal.commit()
        if committed:
            self._on_commit(Commit(changes, committed, self._ledger.size))
        for submission, answer in group.answers:
            if submission.command.kind == ACCEPT_CLOCK and isinstance(answer.decision, Accepted):
                self._guard.accept()
            submission.future.set_result(answer)


def _private_values(submission: Submission, subject: str) -> list[PrivateValue]:
    owner = f"{submission.command.kind.partition('.')[0]}/{subject}"
    return [PrivateValue(one.commitment, owner, one.field, one.salt, one.value) for one in submission.openings]


def _runs(waiting: Sequence[Submission]) -> list[list[Submission]]:
    """Cut so that a snapshot is decided alone: it is folded from the last committed events."""
    runs: list[list[Submission]] = []
    for submission in waiting:
        alone = submission.command.kind == SNAPSHOT
        if alone or not runs or runs[-1][-1].command.kind == SNAPSHOT:
            runs.append([submission])
        else:
            runs[-1].append(submission)
    return runs
