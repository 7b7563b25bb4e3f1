"""Leases: one winner, a hard lifetime, what is billed, and what ends with them."""

import itertools
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from events.types.jobs import AttemptEnded, AttemptPlaced, JobAdmitted, JobSpec, JobSubmitted, NodeRanks
from events.types.nodes import NodeReadmitted, NodeSuspended
from events.types.policy import PolicyAdopted, ProviderSuspended
from hypercluster.domain.kernel import SYSTEM, Accepted
from hypercluster.domain.market.ending import Ending, close_lease, end_lease, expire_lease
from hypercluster.domain.market.supply import leases_on
from hypercluster.domain.policy.release import POLICY_V1
from projections.folds.market import add_span

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from market_world import HOUR_US, WINDOW_US, World


@pytest.fixture
def world() -> World:
    world = World()
    world.provider("alice")
    world.node("alice", node_id="n1", inventory={"ib": True})
    world.node("alice", node_id="n2", inventory={"ib": True})
    return world


def start_attempt(world: World, lease_id: str, job_id: str) -> None:
    spec = JobSpec(
        image_digest="x@sha256:" + "0" * 64,
        entrypoint=("true",),
        world_size=1,
        nnodes=1,
        nproc_per_node=1,
        timeout_s=60,
        lease_id=lease_id,
    )
    placed = AttemptPlaced(
        job_id=job_id,
        attempt_no=1,
        lease_id=lease_id,
        nodes=(NodeRanks(node_id="n1", gpus=(int(job_id[1:]),)),),
        master_node="n1",
        deadline_us=world.now_us + 1,
        policy_digest="sha256:" + "0" * 64,
    )
    world.fold(JobSubmitted(job_id=job_id, submitter="rita", spec=spec), JobAdmitted(job_id=job_id), placed)


def end_attempt(world: World, job_id: str, fault: str) -> None:
    outcome = "succeeded" if fault == "none" else "failed"
    world.fold(AttemptEnded(job_id=job_id, attempt_no=1, outcome=outcome, fault=fault))


def test_the_winner_holds_the_nodes_until_the_end(world):
    offer_id = world.offer("n1", "n2")
    decision = world.send("rita", "offer.rent", {"lifetime_hours": 1.5, "max_price": 2}, offer_id=offer_id)
    assert isinstance(decision, Accepted)
    assert decision.created
    lease = world.state.market.leases[decision.subject]
    assert (lease.renter, lease.provider, lease.status) == ("rita", "alice", "active")
    assert lease.ends_at_us == world.now_us + HOUR_US * 3 // 2
    assert world.state.market.offers[offer_id].status == "leased"
    assert world.state.market.lease_of_pod[lease.pod_id] == lease.lease_id
    for node_id in ("n1", "n2"):
        node = world.state.nodes.nodes[node_id]
        assert (node.status, node.held_by) == ("rented", lease.lease_id)


def test_a_rent_has_one_winner(world):
    same, overlapping = world.offer("n1"), world.offer("n1", "n2")
    world.ok("rita", "offer.rent", {}, offer_id=same)
    assert world.code("rob", "offer.rent", {}, offer_id=same) == "offer_not_listed"
    assert world.code("rob", "offer.rent", {}, offer_id=overlapping) == "capacity_unavailable"
    assert world.state.nodes.nodes["n2"].status == "healthy"


def test_a_provider_may_rent_its_own_offer(world):
    assert world.ok("alice", "offer.rent", {}, offer_id=world.offer("n1"))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"max_price": 1.999999}, "price_over_renter_max"),
        ({"max_price": 0}, "invalid_max_price"),
        ({"max_price": 2.0000001}, "invalid_max_price"),
        ({"lifetime_hours": 0}, "invalid_lifetime_hours"),
        ({"lifetime_hours": -1}, "invalid_lifetime_hours"),
        ({"lifetime_hours": 10.000001}, "lifetime_over_offer_max"),
    ],
)
def test_price_and_lifetime_are_hard_guards(world, body, code):
    assert world.code("rita", "offer.rent", body, offer_id=world.offer("n1")) == code


def test_the_limits_themselves_are_within(world):
    lease_id = world.ok("rita", "offer.rent", {"max_price": 2.0, "lifetime_hours": 10}, offer_id=world.offer("n1"))
    assert world.state.market.leases[lease_id].lifetime_us == 10 * HOUR_US


def test_a_lease_keeps_to_the_policy_of_its_own_time(world):
    offer_id = world.offer("n1")
    capped = replace(POLICY_V1, lifetime_cap_h=5)
    world.fold(PolicyAdopted(digest="sha256:" + "1" * 64, effective_us=world.now_us, policy=capped))
    assert world.code("rita", "offer.rent", {}, offer_id=offer_id) == "lifetime_over_cap"
    cheap = replace(POLICY_V1, price_cap_micro_usd_h=1_999_999)
    world.fold(PolicyAdopted(digest="sha256:" + "2" * 64, effective_us=world.now_us, policy=cheap))
    assert world.code("rita", "offer.rent", {}, offer_id=offer_id) == "price_over_cap"


def test_what_cannot_be_rented(world):
    assert world.code("rita", "offer.rent", {}, offer_id="o9") == "offer_not_found"
    offer_id = world.offer("n1", require_ib=True)
    world.fold(NodeSuspended(node_id="n1", status="draining", reason_code="maintenance"))
    assert world.code("rita", "offer.rent", {}, offer_id=offer_id) == "node_not_offerable"
    world.fold(NodeReadmitted(node_id="n1", reason_code="done"))
    world.now_us += WINDOW_US * 3 // 2
    assert world.code("rita", "offer.rent", {}, offer_id=offer_id) == "node_not_offerable"
    world.ok("alice", "node.heartbeat")
    world.fold(ProviderSuspended(provider_id=world.provider(), status="suspended", reason_code="audit"))
    assert world.code("rita", "offer.rent", {}, offer_id=offer_id) == "provider_not_active"


@pytest.mark.parametrize(("actor", "reason_code"), [("rita", "renter_cancel"), ("alice", "provider_cancel")])
def test_renter_and_provider_may_end_a_lease(world, actor, reason_code):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.now_us += HOUR_US // 3
    world.ok("alice", "node.heartbeat")
    world.ok(actor, "lease.terminate", {"reason": "hmac-sha256:" + "c" * 64}, lease_id=lease_id)
    lease = world.state.market.leases[lease_id]
    assert (lease.status, lease.reason_code, lease.reason) == ("terminated", reason_code, "hmac-sha256:" + "c" * 64)
    assert (lease.billable_us, lease.amount_micro_usd) == (HOUR_US // 3, 666_666)
    node = world.state.nodes.nodes["n1"]
    assert (node.status, node.held_by, dict(world.state.market.lease_of_node)) == ("healthy", None, {})


def test_ending_twice_answers_the_first_end(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.ok("rita", "lease.terminate", lease_id=lease_id)
    pos = world.state.pos
    assert world.send("alice", "lease.terminate", lease_id=lease_id) == Accepted((), lease_id, seq=pos)
    assert world.send(SYSTEM, "lease.expire", {"lease_id": lease_id}) == Accepted((), lease_id, seq=pos)


def test_who_may_not_end_a_lease(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    assert world.code("rob", "lease.terminate", lease_id=lease_id) == "lease_not_owned"
    assert world.code("rita", "lease.terminate", lease_id="l9") == "lease_not_found"
    assert world.code(SYSTEM, "lease.expire", {"lease_id": "l9"}) == "lease_not_found"


def test_a_lease_expires_at_its_hard_lifetime_and_bills_no_more(world):
    lease_id = world.ok("rita", "offer.rent", {"lifetime_hours": 1}, offer_id=world.offer("n1"))
    lease = world.state.market.leases[lease_id]
    world.now_us = lease.ends_at_us - 1
    assert world.code(SYSTEM, "lease.expire", {"lease_id": lease_id}) == "not_due"
    world.now_us = lease.ends_at_us
    assert isinstance(world.decide(SYSTEM, "lease.expire", {"lease_id": lease_id}), Accepted)
    world.now_us = lease.ends_at_us + HOUR_US
    world.ok("alice", "node.heartbeat")
    decision = world.send(SYSTEM, "lease.expire", {"lease_id": lease_id})
    assert isinstance(decision, Accepted)
    (ended,) = decision.events
    assert (ended.status, ended.reason_code, ended.caused_by) == ("expired", "max_lifetime", lease.started_pos)
    assert (ended.billable_us, ended.amount_micro_usd) == (HOUR_US, 2_000_000)


def test_terminating_an_overdue_lease_expires_it(world):
    lease_id = world.ok("rita", "offer.rent", {"lifetime_hours": 1}, offer_id=world.offer("n1"))
    world.now_us += HOUR_US
    world.ok("rita", "lease.terminate", lease_id=lease_id)
    assert world.state.market.leases[lease_id].status == "expired"


def test_an_overdue_lease_does_not_stand_in_the_way_of_the_next(world):
    first = world.ok("rita", "offer.rent", {"lifetime_hours": 1}, offer_id=world.offer("n1"))
    again = world.offer("n1", "n2")
    world.now_us += HOUR_US - 1
    world.ok("alice", "node.heartbeat")
    assert world.code("rob", "offer.rent", {}, offer_id=again) == "capacity_unavailable"
    world.now_us += 1
    assert world.types("rob", "offer.rent", {}, offer_id=again) == ["lease.ended", "lease.started"]
    second = world.state.market.offers[again].lease_id
    assert world.state.market.leases[first].status == "expired"
    assert dict(world.state.market.lease_of_node) == {"n1": second, "n2": second}
    assert world.state.nodes.nodes["n1"].held_by == second


def test_a_node_that_vanished_under_its_lease_is_offline_afterwards(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.now_us += 2 * WINDOW_US
    assert world.types("rita", "lease.terminate", lease_id=lease_id) == ["lease.ended", "node.offline"]
    assert world.state.nodes.nodes["n1"].status == "offline"


@pytest.mark.parametrize("status", ["draining", "suspended"])
def test_an_operators_word_outlasts_the_lease(world, status):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.fold(NodeSuspended(node_id="n1", status=status, reason_code="maintenance"))
    world.now_us += 2 * WINDOW_US
    assert world.types("rita", "lease.terminate", lease_id=lease_id) == ["lease.ended"]
    assert world.state.nodes.nodes["n1"].status == status


def test_a_silent_node_that_is_suspended_under_its_lease_stays_suspended(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.now_us += 2 * WINDOW_US
    lease = world.state.market.leases[lease_id]
    ended = end_lease(world.state, lease, world.now_us, status="failed", reason_code="audit", fault="provider")
    world.fold(NodeSuspended(node_id="n1", status="suspended", reason_code="audit"), *ended)
    assert world.state.nodes.nodes["n1"].status == "suspended"


def test_readmitting_a_leased_node_leaves_it_rented(world):
    world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.fold(NodeSuspended(node_id="n1", status="draining", reason_code="maintenance"))
    world.fold(NodeReadmitted(node_id="n1", reason_code="done"))
    assert world.state.nodes.nodes["n1"].status == "rented"


def test_a_lease_takes_its_jobs_along(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    start_attempt(world, lease_id, "j1")
    assert world.types("rita", "lease.terminate", lease_id=lease_id) == ["lease.ended", "attempt.ended", "job.ended"]
    assert world.state.jobs.jobs["j1"].status == "failed"


def test_attempts_that_failed_by_the_hosts_fault_are_not_billed(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    start_us = world.now_us
    for job_id, minute, fault in [("j1", 10, "provider"), ("j2", 25, "submitter"), ("j3", 45, "nobody")]:
        start_attempt(world, lease_id, job_id)
        world.now_us = start_us + minute * 60_000_000
        end_attempt(world, job_id, fault)
    world.now_us = start_us + HOUR_US
    world.ok("alice", "node.heartbeat")
    world.ok("rita", "lease.terminate", lease_id=lease_id)
    lease = world.state.market.leases[lease_id]
    assert (lease.billable_us, lease.amount_micro_usd) == (HOUR_US * 50 // 60, 1_666_666)
    assert not world.state.market.lost


def test_attempts_that_overlap_are_lost_once(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    start_attempt(world, lease_id, "j1")
    start_attempt(world, lease_id, "j2")
    world.now_us += HOUR_US
    end_attempt(world, "j1", "provider")
    end_attempt(world, "j2", "provider")
    world.now_us += HOUR_US
    world.ok("alice", "node.heartbeat")
    world.ok("rita", "lease.terminate", lease_id=lease_id)
    assert world.state.market.leases[lease_id].billable_us == HOUR_US


def test_a_hosts_fault_is_not_billed_from_when_it_was_last_seen(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1", "n2"))
    lease = world.state.market.leases[lease_id]
    world.now_us += WINDOW_US
    world.ok("alice", "node.heartbeat")
    world.now_us += WINDOW_US
    world.ok("alice", "node.heartbeat", {"node_id": "n2"})
    world.now_us += WINDOW_US

    def billed(**ending: object) -> int:
        return close_lease(world.state, lease, world.now_us, Ending("failed", "host_failed", **ending))[0].billable_us

    assert billed() == 3 * WINDOW_US
    assert billed(fault="provider") == WINDOW_US
    assert billed(fault="provider", lost_from_us=lease.started_us + 7) == 7
    assert billed(fault="provider", lost_from_us=lease.started_us - 7) == 0
    assert billed(fault="provider", lost_from_us=world.now_us + 7) == 3 * WINDOW_US


def test_ending_a_lease_spelled_out_is_the_same(world):
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    lease, at_us = world.state.market.leases[lease_id], world.now_us + 1
    spelled = end_lease(world.state, lease, at_us, status="failed", reason_code="x", fault="provider", caused_by=3)
    assert spelled == close_lease(world.state, lease, at_us, Ending("failed", "x", "provider", 3))
    assert leases_on(world.state, ("n2", "n1", "n1")) == (lease,)


def test_the_fold_refuses_a_second_lease_on_a_node_and_a_second_end(world):
    one, other = world.offer("n1"), world.offer("n1", "n2")
    second = world.decide("rob", "offer.rent", {}, offer_id=other)
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=one)
    mark = world.state.mark()
    with pytest.raises(ValueError, match="two leases"):
        world.fold(*second.events)
    world.state.rollback(mark)
    ended = expire_lease(world.state, world.state.market.leases[lease_id], world.now_us)
    world.fold(*ended)
    with pytest.raises(KeyError):
        world.fold(*ended)


def test_spans_are_the_union_in_any_case():
    points = range(5)
    spans = [(start, end) for start, end in itertools.product(points, points) if start <= end]
    for three in itertools.product(spans, repeat=3):
        ordered = sorted(three, key=lambda span: span[1])
        merged: tuple[tuple[int, int], ...] = ()
        for start, end in ordered:
            merged = add_span(merged, start, end)
        covered = {tick for start, end in three for tick in range(start, end)}
        assert sum(end - start for start, end in merged) == len(covered)
        assert all(left[1] < right[0] for left, right in itertools.pairwise(merged))
