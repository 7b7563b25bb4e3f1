"""Signed requests by real keys, through authentication, router, decide, batch and fold. No files, no network."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import sr25519
from nacl.signing import SigningKey

from events.envelope import CommandRecord, Event, Recorded
from events.ledger import Batch
from events.types.ledger import CommandNoted, CommandRefused
from events.types.policy import Policy
from hypercluster.domain import router
from hypercluster.domain.codes import CODES
from hypercluster.domain.deciding import decide
from hypercluster.domain.identity import gate, ss58
from hypercluster.domain.identity.authentication import Authenticated, authenticate
from hypercluster.domain.identity.signed_text import SignedText
from hypercluster.domain.kernel import RULES, US_PER_S, Accepted, Command, Context, Decision, Refused
from hypercluster.domain.policy.internal import BeginPolicy, OpenLedger
from hypercluster.domain.policy.release import policy_of
from projections.fold import State, evolve

START_US = 1_796_000_000 * US_PER_S
AUDIENCE = "hypercluster@test"
UNDECIDED = (401, 422, 429, 503)


class Person:
    """A hotkey with its secret, under one scheme."""

    def __init__(self, number: int, scheme: str = "sr25519") -> None:
        self.seed, self.scheme = bytes([number]) * 32, scheme
        self.pair = sr25519.pair_from_seed(self.seed)
        public = self.pair[0] if scheme == "sr25519" else bytes(SigningKey(self.seed).verify_key)
        self.hotkey = ss58.encode(public)

    def sign(self, message: bytes) -> str:
        """The signature header."""
        if self.scheme == "sr25519":
            return bytes(sr25519.sign(self.pair, message)).hex()
        return "ed25519:" + SigningKey(self.seed).sign(message).signature.hex()


OPERATOR, ALICE, BOB, EVE = (Person(number) for number in (1, 2, 3, 4))


@dataclass
class Outcome:
    """What came of a command: the decision, and the events that record it (none: unrecorded)."""

    decision: Decision
    recorded: list[Recorded] = field(default_factory=list)

    @property
    def code(self) -> str | None:
        """The refusal's code."""
        return self.decision.code if isinstance(self.decision, Refused) else None

    @property
    def types(self) -> list[str]:
        """Names of the recorded events."""
        return [one.envelope.type for one in self.recorded]

    @property
    def subject(self) -> str:
        """The subject of what must have been accepted."""
        assert isinstance(self.decision, Accepted), self.decision
        return self.decision.subject


class World:
    """An opened ledger. `now_us` moves only when a test moves it."""

    def __init__(self, profile: str = "production", policy: Policy | None = None) -> None:
        self.state, self.now_us, self.profile = State(), START_US, profile
        self.versions: dict[str, int] = {}
        self.sent = 0
        opened = OpenLedger(
            origin="hypercluster-test",
            profile=profile,
            public_key="0a" * 32,
            slug="hypercluster",
            audience=AUDIENCE,
            operators=(OPERATOR.hotkey,),
            release="test",
        )
        begun = BeginPolicy(policy=policy or policy_of(profile), rules=RULES, release="test")
        assert self.internal("ledger.open", opened, cause=0).types == ["ledger.opened"]
        assert self.internal("policy.begin", begun, cause=1).types == ["policy.adopted", "rules.activated"]

    def internal(self, kind: str, body: Any, cause: int, attempt: int = 0) -> Outcome:
        """Decide and record an internal command."""
        command = router.internal_command(kind, body, cause=cause, attempt=attempt, received_us=self.now_us)
        return self._take(command, router.record_of(command))

    def signed(
        self, person: Person, method: str, path: str, body: Any = None, *, nonce: str = ""
    ) -> tuple[Command, CommandRecord]:
        """A request that has passed authentication."""
        self.sent += 1
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        text = SignedText(
            audience=AUDIENCE,
            method=method,
            path=path,
            hotkey=person.hotkey,
            nonce=nonce or f"nonce-{self.sent:016d}",
            seconds=self.now_us // US_PER_S,
            body_sha256=hashlib.sha256(data).hexdigest(),
        )
        values = (text.hotkey, person.sign(text.message()), text.nonce, str(text.seconds))
        names = (b"x-hotkey", b"x-signature", b"x-nonce", b"x-timestamp")
        found = authenticate(
            [(name, value.encode()) for name, value in zip(names, values, strict=True)],
            method,
            path,
            text.body_sha256,
            now_us=self.now_us,
            audience=AUDIENCE,
            window_s=300,
            profile=self.profile,
        )
        assert isinstance(found, Authenticated), found
        matched = router.match(method, path)
        assert matched is not None
        record = CommandRecord(
            kind=matched.route.kind,
            origin="signed",
            received_us=self.now_us,
            body=data.decode(),
            text=found.text,
            scheme=found.scheme,
            signature=found.signature,
        )
        command = router.signed_command(matched, record, actor=found.hotkey, nonce=found.nonce, body=data.decode())
        return command, record

    def send(self, person: Person, method: str, path: str, body: Any = None, *, nonce: str = "") -> Outcome:
        """Authenticate, decide and record one request."""
        return self._take(*self.signed(person, method, path, body, nonce=nonce))

    def post(self, person: Person, path: str, body: Any = None, *, nonce: str = "") -> Outcome:
        """`send` with POST."""
        return self.send(person, "POST", path, {} if body is None else body, nonce=nonce)

    def record(self, command: Command, record: CommandRecord, events: tuple[Event, ...]) -> list[Recorded]:
        """Encode and fold events as the answer to a command."""
        batch = Batch(self.state.pos, self.now_us, lambda stream: self.versions.get(stream, 0), lambda _: None)
        recorded = batch.add(
            events,
            cmd=command.digest,
            cmd_ms=router.request_ms(record),
            actor=command.actor,
            rules=RULES,
            command=record,
        )
        for one in recorded:
            evolve(self.state, one)
            self.versions[one.envelope.stream] = one.envelope.sv
        return recorded

    def _take(self, command: Command, record: CommandRecord) -> Outcome:
        decision = decide(self.state, command, Context(self.now_us, self.state.pos, "00" * 32))
        events, decision = self._settle(command, decision)
        return Outcome(decision, self.record(command, record, events) if events else [])

    def _settle(self, command: Command, decision: Decision) -> tuple[tuple[Event, ...], Decision]:
        """What the writer records for a decision."""
        state, actor, kind = self.state, command.actor, command.kind
        if isinstance(decision, Accepted):
            if decision.events or command.origin == "internal" or not gate.may_note(state, command, self.now_us):
                return decision.events, decision
            return (CommandNoted(hotkey=actor, kind=kind, subject=decision.subject),), decision
        if command.origin == "internal" or CODES[decision.code].status in UNDECIDED:
            return (), decision
        if gate.may_record(state, actor, self.now_us):
            code, message, place = decision.code, decision.message, decision.field
            return (CommandRefused(hotkey=actor, kind=kind, code=code, message=message, field=place),), decision
        if gate.budget_empty(state, actor, self.now_us):
            return (), Refused("too_many_refusals", "retry later")
        return (), decision


def picture(state: State) -> dict[str, object]:
    """All tables as plain values, to compare states with."""
    return {
        table.name: {key: dict(row) if isinstance(row, dict) else row for key, row in table.items()}
        for table in state.tables()
    }
