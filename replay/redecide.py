"""Levels 3 and 4: every command decided again from the state before it, and the events compared byte for byte.

The state is folded once for both levels. Level 4 takes the events that say scores and weights, level 3 all others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from events import codec
from events.envelope import Event, Recorded
from events.errors import LedgerError
from events.hashing import leaf_hash
from events.registry import decode
from hypercluster.domain import recording, router
from hypercluster.domain.deciding import decide
from hypercluster.domain.kernel import RULES, Command, Context, Decision, Refused
from projections.fold import State, evolve
from replay.facts import check_facts
from replay.frontier import Frontier
from replay.level_bytes import Ground, Mismatch
from replay.report import Level, Progress, Report
from replay.source import Source

SCORING_KINDS = frozenset({"attempt.score", "weights.snapshot"})
SCORING_AREAS = ("score.", "weights.")

# What a decider or a fold raises on events that no decider ever made. A forged ledger holds such events.
NONSENSE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, LedgerError)


@dataclass(slots=True)
class Redecision:
    """Where the pass stands. scores is None when level 4 was not asked for."""

    source: Source
    report: Report
    ground: Ground
    decisions: Level
    scores: Level | None
    state: State = field(default_factory=State)
    tree: Frontier = field(default_factory=Frontier)

    def run(self, progress: Progress | None) -> State:
        """Go through the ledger once, to its end or to the first wrong decision. Returns the folded state."""
        self.decisions.ran = True
        if self.scores is not None:
            self.scores.ran = True
        for group in groups(self.source):
            try:
                self._take(group)
            except NONSENSE as error:
                self.decisions.found_wrong(group[0].pos, f"the state cannot take this event: {error!r}")
            if self.decisions.wrong is not None:
                break
            if progress and (self.tree.size % 1000 < len(group) or self.tree.size == self.source.size):
                progress(3, self.tree.size, self.source.size)
        if self.decisions.wrong is not None and self.scores is not None and self.scores.wrong is None:
            self.scores.ran = False
        return self.state

    def _take(self, group: Sequence[Recorded]) -> None:
        level = self._level(group)
        if level is not None:
            self._check(group, level)
        for recorded in group:
            evolve(self.state, recorded)
            self.tree.append(leaf_hash(recorded.entry))
        self.state.journal.forget()

    def _level(self, group: Sequence[Recorded]) -> Level | None:
        """The level that this command belongs to; None where it was not asked for."""
        record = group[0].envelope.command
        scoring = record is not None and record.kind in SCORING_KINDS
        return self.scores if scoring else self.decisions

    def _check(self, group: Sequence[Recorded], level: Level) -> None:
        first = group[0]
        if first.envelope.rules != RULES:
            number = first.envelope.rules
            level.unverifiable[f"decided under rules {number}"] += 1
            self.report.rules[number] = self.ground.releases.get(number, "a release that the ledger does not name")
            return
        try:
            expected = self._decide_again(first, level)
        except NONSENSE as error:
            level.found_wrong(first.pos, f"the command cannot be decided: {error!r}")
            return
        except Mismatch as error:
            level.found_wrong(first.pos, str(error))
            return
        if expected is not None:
            self._compare(group, expected, level)

    def _decide_again(self, first: Recorded, level: Level) -> tuple[Event, ...] | None:
        """The events that the same command yields from the same state; None where its body is withheld."""
        record = first.envelope.command
        if record is None:
            raise Mismatch("the event records no command")
        blob = None if record.body_blob is None else self.source.blob(record.body_blob)
        if record.body_blob is not None and blob is None:
            level.withheld["command body in a blob that is not beside the ledger"] += 1
            return None
        try:
            command = router.command_of(first.envelope, blob)
        except (router.UnroutedCommand, ValidationError, ValueError) as error:
            raise Mismatch(f"the recorded command cannot be read: {error}") from error
        check_facts(self.source, level, self.state, command)
        context = Context(at_us=first.at_us, size=self.tree.size, root=self.tree.root().hex())
        return answer_events(self.state, command, decide(self.state, command, context), context.at_us)

    def _compare(self, group: Sequence[Recorded], expected: Sequence[Event], level: Level) -> None:
        for index, recorded in enumerate(group):
            event = expected[index] if index < len(expected) else None
            difference = _difference(recorded, event)
            if difference is not None:
                self._blame(recorded, event, level).found_wrong(recorded.pos, difference)
                return
        if len(expected) > len(group):
            missing = expected[len(group)]
            reason = f"the decision also yields {missing.type_name}, which the ledger lacks"
            self._blame(group[-1], missing, level).found_wrong(group[-1].pos, reason)
            return
        level.checked += 1
        if self.scores is not None and level is self.decisions:
            self.scores.checked += sum(is_scoring(recorded.event) for recorded in group)

    def _blame(self, recorded: Recorded, event: Event | None, level: Level) -> Level:
        """A score or weight that differs belongs to level 4, whichever command brought it."""
        scoring = is_scoring(recorded.event) or (event is not None and is_scoring(event))
        return self.scores if scoring and self.scores is not None else level


def is_scoring(event: Event) -> bool:
    """Whether the event states a score or weights."""
    return event.type_name.startswith(SCORING_AREAS)


def groups(source: Source) -> Iterator[list[Recorded]]:
    """The events of each command, in order. Level 1 has shown that they stand together."""
    group: list[Recorded] = []
    for page in source.pages():
        for stored in page:
            recorded = decode(stored.pos, stored.entry)
            group.append(recorded)
            if recorded.envelope.n == recorded.envelope.of:
                yield group
                group = []


def answer_events(state: State, command: Command, decision: Decision, at_us: int) -> tuple[Event, ...]:
    """The events in which a decision is recorded. Raises: Mismatch where the server would not have recorded it."""
    events = recording.events_of(state, command, decision, at_us)
    if events:
        return events
    if command.origin == "internal":
        why = decision.code if isinstance(decision, Refused) else "nothing to change"
        raise Mismatch(f"decided again, {command.kind} yields no event: {why}")
    if isinstance(decision, Refused) and recording.is_undecided(decision):
        raise Mismatch(f"decided again, {command.kind} is turned away unrecorded: {decision.code}")
    raise Mismatch(f"decided again, {command.kind} has nothing to record, or its hotkey no budget for it")


def _difference(recorded: Recorded, event: Event | None) -> str | None:
    """Where the stored event and the one decided again part; None where they are the same bytes."""
    found = recorded.envelope
    if event is None:
        return f"decided again, the command yields no {found.type} here"
    if (found.type, found.tv) != (event.type_name, event.type_version):
        return f"decided again, the command yields {event.type_name} where {found.type} stands"
    if found.stream != event.stream():
        return f"decided again, {found.type} belongs to {event.stream()}, not to {found.stream}"
    data = codec.encode(event)
    if data == bytes(found.data):
        return None
    return f"{found.type} says {_parting(bytes(found.data), data)}"


def _parting(stored: bytes, decided: bytes) -> str:
    """The first field that differs, as `field = stored, decided again it is other`."""
    ours, theirs = codec.decode(stored), codec.decode(decided)
    path = ""
    while isinstance(ours, dict) and isinstance(theirs, dict):
        key = next(key for key in sorted(ours.keys() | theirs.keys()) if ours.get(key) != theirs.get(key))
        path = f"{path}.{key}" if path else key
        ours, theirs = ours.get(key), theirs.get(key)
    return f"{path} = {_short(ours)}, decided again it is {_short(theirs)}"


def _short(value: object) -> str:
    text = "absent" if value is None else codec.encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."
