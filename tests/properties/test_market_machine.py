"""Any sequence of market commands against a naive market that remembers everything in lists."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from events.types.nodes import NodeReadmitted, NodeSuspended
from hypercluster.domain.kernel import SYSTEM, Accepted
from hypercluster.domain.market.ending import end_lease, withdraw_offers_of
from hypercluster.domain.market.supply import leases_on

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from market_world import HOUR_US, WINDOW_US, World, picture

OWNERS = {"n0": "alice", "n1": "alice", "n2": "alice", "n3": "bob", "n4": "bob"}
NODES = st.sampled_from(sorted(OWNERS))
PEOPLE = st.sampled_from(["alice", "bob", "rita", "rob"])
GONE_US = WINDOW_US * 3 // 2
PRICE = 2_000_000


@dataclass
class NaiveNode:
    seen_us: int
    flag: str = "fine"  # fine | offline | draining | suspended


@dataclass
class NaiveLease:
    lease_id: str
    renter: str
    owner: str
    nodes: tuple[str, ...]
    start_us: int
    ends_us: int
    status: str = "active"
    amount: int = 0


@dataclass
class NaiveOffer:
    offer_id: str
    owner: str
    nodes: tuple[str, ...]
    hours: int
    status: str = "listed"
    lease: NaiveLease | None = None


class Market(RuleBasedStateMachine):
    """Every command is folded, taken back and folded again: the state must be what it was, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.provider("alice")
        self.world.provider("bob")
        self.nodes = {node_id: NaiveNode(self.world.now_us) for node_id in OWNERS}
        self.offers: list[NaiveOffer] = []
        self.leases: list[NaiveLease] = []
        for node_id, owner in OWNERS.items():
            self.world.node(owner, node_id=node_id)

    def send(self, actor: str, kind: str, body: dict[str, Any] | None = None, **path: str) -> str:
        """Fold, undo, fold again. Returns the subject, or the code of the refusal after "!"."""
        decision = self.world.decide(actor, kind, body, **path)
        if not isinstance(decision, Accepted):
            return "!" + decision.code
        self.fold(decision.events)
        return decision.subject

    def fold(self, events: tuple[Any, ...]) -> None:
        state = self.world.state
        before, mark = picture(state), state.mark()
        self.world.fold(*events)
        after = picture(state)
        state.rollback(mark)
        assert picture(state) == before
        self.world.fold(*events)
        assert picture(state) == after

    def running(self, node_id: str) -> NaiveLease | None:
        """The lease that has not ended on this node, by looking at all of them."""
        found = [lease for lease in self.leases if lease.status == "active" and node_id in lease.nodes]
        assert len(found) <= 1
        return found[0] if found else None

    def end(self, lease: NaiveLease, status: str) -> None:
        now_us = self.world.now_us
        lease.status = status
        billed = min(now_us, lease.ends_us) - lease.start_us
        if status == "failed":
            billed = max(0, min(billed, min(self.nodes[one].seen_us for one in lease.nodes) - lease.start_us))
        lease.amount = PRICE * billed // HOUR_US
        for node_id in lease.nodes:
            node = self.nodes[node_id]
            if node.flag == "fine" and now_us - node.seen_us >= GONE_US:
                node.flag = "offline"

    def rentable(self, node_id: str) -> bool:
        node, lease = self.nodes[node_id], self.running(node_id)
        covered = lease is not None and lease.ends_us > self.world.now_us
        return node.flag == "fine" and (covered or self.world.now_us - node.seen_us < GONE_US)

    @rule(minutes=st.sampled_from([0, 1, 2, 3, 20, 60]))
    def time_passes(self, minutes: int) -> None:
        self.world.now_us += minutes * 60_000_000

    @rule(node_id=NODES)
    def heartbeat(self, node_id: str) -> None:
        node, now_us = self.nodes[node_id], self.world.now_us
        assert self.send(OWNERS[node_id], "node.heartbeat", {"node_id": node_id}) == node_id
        if node.flag == "offline" or now_us - node.seen_us >= WINDOW_US // 2:
            node.seen_us = now_us
            node.flag = "fine" if node.flag == "offline" else node.flag

    @rule(node_id=NODES)
    def reclaim(self, node_id: str) -> None:
        node, answer = self.nodes[node_id], self.send(SYSTEM, "node.reclaim", {"node_id": node_id})
        if self.running(node_id):
            assert answer == "!node_under_lease"
        elif node.flag != "fine":
            assert answer == node_id
        elif self.world.now_us - node.seen_us < GONE_US:
            assert answer == "!not_due"
        else:
            assert answer == node_id
            node.flag = "offline"

    @rule(
        owner=st.sampled_from(["alice", "bob"]), chosen=st.sets(NODES, min_size=1, max_size=3), hours=st.integers(1, 2)
    )
    def list_offer(self, owner: str, chosen: set[str], hours: int) -> None:
        nodes = tuple(sorted(chosen))
        mode = "single" if len(nodes) == 1 else "cluster"
        body = {"node_ids": list(nodes), "mode": mode, "price_per_hour": 2, "max_lifetime_hours": hours}
        answer = self.send(owner, "offer.create", body)
        wrong = [one for one in nodes if OWNERS[one] != owner or not self.rentable(one)]
        if not wrong:
            self.offers.append(NaiveOffer(answer, owner, nodes, hours))
        else:
            assert answer == ("!node_not_owned" if OWNERS[wrong[0]] != owner else "!node_not_offerable")

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), renter=PEOPLE)
    def rent(self, data: st.DataObject, renter: str) -> None:
        offer = data.draw(st.sampled_from(self.offers))
        now_us = self.world.now_us
        answer = self.send(renter, "offer.rent", {}, offer_id=offer.offer_id)
        before = [lease for lease in map(self.running, offer.nodes) if lease is not None]
        if offer.status != "listed":
            assert answer == "!offer_not_listed"
        elif not all(map(self.rentable, offer.nodes)):
            assert answer == "!node_not_offerable"
        elif any(lease.ends_us > now_us for lease in before):
            assert answer == "!capacity_unavailable"
        else:
            for lease in before:
                self.end(lease, "expired")
            lease = NaiveLease(answer, renter, offer.owner, offer.nodes, now_us, now_us + offer.hours * HOUR_US)
            self.leases.append(lease)
            offer.status, offer.lease = "leased", lease

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), actor=PEOPLE)
    def terminate(self, data: st.DataObject, actor: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        answer = self.send(actor, "lease.terminate", lease_id=lease.lease_id)
        if actor not in (lease.renter, lease.owner):
            assert answer == "!lease_not_owned"
            return
        assert answer == lease.lease_id
        if lease.status == "active":
            self.end(lease, "terminated" if lease.ends_us > self.world.now_us else "expired")

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        answer = self.send(SYSTEM, "lease.expire", {"lease_id": lease.lease_id})
        if lease.status == "active" and lease.ends_us > self.world.now_us:
            assert answer == "!not_due"
            return
        assert answer == lease.lease_id
        if lease.status == "active":
            self.end(lease, "expired")

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), actor=st.sampled_from(["alice", "bob"]))
    def withdraw(self, data: st.DataObject, actor: str) -> None:
        offer = data.draw(st.sampled_from(self.offers))
        answer = self.send(actor, "offer.withdraw", offer_id=offer.offer_id)
        lease = offer.lease if offer.lease is not None and offer.lease.status == "active" else None
        if actor != offer.owner:
            assert answer == "!offer_not_owned"
        elif offer.status == "leased" and lease is not None and lease.ends_us > self.world.now_us:
            assert answer == "!offer_active_lease"
        else:
            assert answer == offer.offer_id
            if lease is not None:
                self.end(lease, "expired")
            offer.status = "withdrawn"

    @rule(node_id=NODES, status=st.sampled_from(["suspended", "draining"]))
    def operator_excludes(self, node_id: str, status: str) -> None:
        state, events = self.world.state, [NodeSuspended(node_id=node_id, status=status, reason_code="audit")]
        if status == "suspended":
            events += withdraw_offers_of(state, node_ids=(node_id,), reason_code="audit")
            for lease in leases_on(state, (node_id,)):
                ending = {"status": "failed", "reason_code": "audit", "fault": "provider"}
                events += end_lease(state, lease, self.world.now_us, **ending)
        self.fold(tuple(events))
        self.nodes[node_id].flag = status
        running = self.running(node_id)
        if status == "suspended":
            for offer in self.offers:
                if node_id in offer.nodes and offer.status == "listed":
                    offer.status = "withdrawn"
            if running is not None:
                self.end(running, "failed")

    @rule(node_id=NODES)
    def operator_readmits(self, node_id: str) -> None:
        self.fold((NodeReadmitted(node_id=node_id, reason_code="passed"),))
        self.nodes[node_id].flag = "fine"

    @invariant()
    def same_market(self) -> None:
        market, nodes = self.world.state.market, self.world.state.nodes
        for node_id, naive in self.nodes.items():
            node, lease = nodes.nodes[node_id], self.running(node_id)
            fine = "healthy" if lease is None else "rented"
            assert node.status == (fine if naive.flag == "fine" else naive.flag)
            assert node.last_seen_us == naive.seen_us
            assert node.held_by == market.lease_of_node.get(node_id) == (lease.lease_id if lease else None)
            listed = [offer.offer_id for offer in self.offers if offer.status == "listed" and node_id in offer.nodes]
            assert list(market.listed_by_node.get(node_id, ())) == listed
        for offer in self.offers:
            assert market.offers[offer.offer_id].status == offer.status
        for lease in self.leases:
            found = market.leases[lease.lease_id]
            assert (found.status, found.amount_micro_usd or 0) == (lease.status, lease.amount)
        assert set(nodes.held) == {lease.lease_id for lease in self.leases if lease.status == "active"}


Market.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestMarket = Market.TestCase
