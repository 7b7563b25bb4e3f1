"""A state, a clock and the market's deciders: commands in, folded events out. No ledger file, no network."""

import base64
import copy
import hashlib
import json
from typing import Any

import msgspec

from events.envelope import Envelope, Event, Recorded
from events.types.ledger import LedgerOpened
from events.types.policy import PolicyAdopted
from hypercluster.domain import strict_json
from hypercluster.domain.kernel import SYSTEM, Accepted, Command, Context, Decision, Refused
from hypercluster.domain.market.commands import ROUTES as MARKET_ROUTES
from hypercluster.domain.market.decide import DECIDERS as MARKET
from hypercluster.domain.market.internal import ExpireLease
from hypercluster.domain.nodes.commands import ROUTES as NODE_ROUTES
from hypercluster.domain.nodes.decide import DECIDERS as NODES
from hypercluster.domain.nodes.internal import ReclaimNode
from hypercluster.domain.policy.release import POLICY_V1
from projections.fold import State, evolve

START_US = 1_764_547_200_000_000
HOUR_US = 3_600_000_000
WINDOW_US = POLICY_V1.liveness_window_s * 1_000_000
DECIDERS = {**MARKET, **NODES}
BODIES: dict[str, Any] = {route.kind: route.body for route in (*MARKET_ROUTES, *NODE_ROUTES)}
BODIES |= {"lease.expire": ExpireLease, "node.reclaim": ReclaimNode}


def host_key(name: str) -> str:
    """A well-formed ed25519 host key that belongs to this name."""
    blob = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + hashlib.sha256(name.encode()).digest()
    return "ssh-ed25519 " + base64.b64encode(blob).decode()


def picture(state: State) -> dict[str, dict[Any, Any]]:
    """All tables, copied, to compare states with."""
    return {table.name: copy.copy(dict(table)) for table in state.tables()}


class World:
    """Starts with an opened ledger under policy version 1. `now_us` moves only when a test moves it."""

    def __init__(self) -> None:
        self.state = State()
        self.now_us = START_US
        self.sent = 0
        opened = LedgerOpened(
            origin="hypercluster-test",
            profile="production",
            public_key="00" * 32,
            slug="hypercluster",
            audience="hypercluster",
            operators=("operator",),
            entry_format=1,
            release="test",
        )
        self.fold(opened, PolicyAdopted(digest="sha256:" + "0" * 64, effective_us=0, policy=POLICY_V1))

    def fold(self, *events: Event, actor: str = SYSTEM) -> None:
        """Fold events as if they had been appended."""
        for number, event in enumerate(events, 1):
            envelope = Envelope(
                v=1,
                type=event.type_name,
                tv=event.type_version,
                stream=event.stream(),
                sv=1,
                at_us=self.now_us,
                cmd="00" * 32,
                n=number,
                of=len(events),
                actor=actor,
                rules=1,
                data=msgspec.Raw(msgspec.json.encode(event)),
            )
            pos = self.state.pos + 1
            evolve(self.state, Recorded(pos, self.now_us, envelope, event, msgspec.json.encode(envelope)))

    def decide(self, actor: str, kind: str, body: dict[str, Any] | None = None, **path: str) -> Decision:
        """What the decider says, nothing folded. The body goes through the strict reader and the route's model."""
        self.sent += 1
        text = json.dumps(body or {})
        command = Command(
            kind=kind,
            actor=actor,
            origin="internal" if actor == SYSTEM else "signed",
            body=BODIES[kind].model_validate(strict_json.loads(text.encode())),
            digest=hashlib.sha256(f"{self.sent}{actor}{kind}{text}".encode()).digest(),
            received_us=self.now_us,
            path=path,
            body_text=text,
        )
        return DECIDERS[kind](self.state, command, Context(self.now_us, self.state.pos, "00" * 32))

    def send(self, actor: str, kind: str, body: dict[str, Any] | None = None, **path: str) -> Decision:
        """Decide and fold."""
        decision = self.decide(actor, kind, body, **path)
        if isinstance(decision, Accepted):
            self.fold(*decision.events, actor=actor)
        return decision

    def ok(self, actor: str, kind: str, body: dict[str, Any] | None = None, **path: str) -> str:
        """Decide and fold what must be accepted. Returns the subject."""
        decision = self.send(actor, kind, body, **path)
        assert isinstance(decision, Accepted), decision
        return decision.subject

    def code(self, actor: str, kind: str, body: dict[str, Any] | None = None, **path: str) -> str:
        """The code of what must be refused."""
        decision = self.send(actor, kind, body, **path)
        assert isinstance(decision, Refused), decision
        return decision.code

    def types(self, actor: str, kind: str, body: dict[str, Any] | None = None, **path: str) -> list[str]:
        """Decide and fold what must be accepted. Returns the names of the events."""
        decision = self.send(actor, kind, body, **path)
        assert isinstance(decision, Accepted), decision
        return [event.type_name for event in decision.events]

    def provider(self, hotkey: str = "alice") -> str:
        """A registered provider."""
        return self.ok(hotkey, "provider.register")

    def node(self, hotkey: str = "alice", **changes: Any) -> str:
        """A registered node with eight H100."""
        return self.ok(hotkey, "node.register", {"gpu_model": "H100_80GB", "gpu_count": 8, **changes})

    def offer(self, *node_ids: str, hotkey: str = "alice", **changes: Any) -> str:
        """A listed offer of these nodes: 2 USD an hour, at most ten hours."""
        mode = "single" if len(node_ids) == 1 else "cluster"
        terms = {"node_ids": list(node_ids), "mode": mode, "price_per_hour": 2, "max_lifetime_hours": 10}
        return self.ok(hotkey, "offer.create", {**terms, **changes})

    def leased(self, **node: Any) -> tuple[str, str]:
        """Alice's node, rented by rita for ten hours. Returns node and lease ids."""
        self.provider()
        node_id = self.node(**node)
        return node_id, self.ok("rita", "offer.rent", {}, offer_id=self.offer(node_id))
