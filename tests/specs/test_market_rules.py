"""Providers and offers: what may be listed, by whom, at which price, and when it goes away."""

import sys
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from events.types.nodes import NodeOffline, NodeSuspended
from events.types.policy import ProviderSuspended
from hypercluster.domain.kernel import Accepted
from hypercluster.domain.market.commands import CreateOffer
from hypercluster.domain.market.ending import withdraw_offers_of
from hypercluster.domain.market.offers import OFFERS_PER_NODE_MAX
from hypercluster.domain.prices import exact, floor, micro_usd

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from market_world import HOUR_US, WINDOW_US, World

GIVEN: dict[str, object] = {"node_ids": ["n1"], "price_per_hour": 2, "max_lifetime_hours": 10}


@pytest.fixture
def world() -> World:
    world = World()
    world.provider("alice")
    world.provider("bob")
    world.node("alice", node_id="n1", location_hint="fi")
    world.node("alice", node_id="n2", gpu_count=4, tee_capability="tdx", inventory={"ib": True})
    world.node("bob", node_id="b1")
    return world


def test_registering_twice_answers_the_first_registration():
    world = World()
    first = world.send("alice", "provider.register", {"display_name": " "})
    assert isinstance(first, Accepted)
    assert first.created
    pos = world.state.pos
    assert world.send("alice", "provider.register") == Accepted((), first.subject, created=False, seq=pos)


def test_a_name_is_given_once():
    world = World()
    provider_id = world.provider()
    assert world.types("alice", "provider.register", {"display_name": "Alice"}) == ["provider.named"]
    assert world.types("alice", "provider.register", {"display_name": "Eve"}) == []
    assert world.state.market.providers[provider_id].display_name == "Alice"


def test_a_providers_heartbeat_leaves_no_trace(world):
    assert world.types("alice", "provider.heartbeat") == []
    assert world.code("carol", "provider.heartbeat") == "provider_not_found"


def test_an_offer_takes_its_nodes_word_for_what_it_leaves_out(world):
    offer = world.state.market.offers[world.offer("n1", "n2", metadata={"b": 1.50, "a": None})]
    assert (offer.status, offer.gpu_model, offer.gpu_count, offer.tee) == ("listed", "H100_80GB", 12, "none")
    assert (offer.location_hint, offer.metadata) == ("fi", '{"a":null,"b":1.5}')
    assert (offer.price_micro_usd_h, offer.max_lifetime_us) == (2_000_000, 10 * HOUR_US)
    assert world.state.market.offers[world.offer("n2")].tee == "tdx"


def test_a_node_named_twice_counts_once(world):
    assert world.state.market.offers[world.offer("n1", "n1", mode="single")].node_ids == ("n1",)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mode": "pair"}, "invalid_mode"),
        ({"max_lifetime_hours": None}, "missing_max_lifetime_hours"),
        ({"max_lifetime_hours": 0}, "invalid_max_lifetime_hours"),
        ({"max_lifetime_hours": -1}, "invalid_max_lifetime_hours"),
        ({"max_lifetime_hours": 1e-10}, "invalid_max_lifetime_hours"),
        ({"max_lifetime_hours": 720.000001}, "lifetime_over_cap"),
        ({"node_ids": [" "]}, "invalid_node_ids"),
        ({"node_ids": ["x" * 37]}, "invalid_node_ids"),
        ({"node_ids": ["n9"]}, "node_not_found"),
        ({"node_ids": ["b1"]}, "node_not_owned"),
        ({"mode": "cluster"}, "invalid_mode_nodes"),
        ({"node_ids": ["n1", "n2"]}, "invalid_mode_nodes"),
        ({"require_ib": True}, "ib_required"),
        ({"gpu_count": 9}, "offer_exceeds_nodes"),
        ({"gpu_model": "H200_141GB"}, "offer_exceeds_nodes"),
        ({"tee": "tdx"}, "offer_exceeds_nodes"),
        ({"node_ids": ["n2"], "tee": "tdx+gpu_cc"}, "offer_exceeds_nodes"),
        ({"node_ids": ["n2"], "tee": "sev"}, "offer_exceeds_nodes"),
        ({"price_per_hour": None}, "missing_price_per_hour"),
        ({"price_per_hour": 0}, "invalid_price_per_hour"),
        ({"price_per_hour": -2}, "invalid_price_per_hour"),
        ({"price_per_hour": 2.0000001}, "invalid_price_per_hour"),
        ({"price_per_hour": 1000.000001}, "price_over_cap"),
        ({"metadata": {"note": "x" * 4086}}, "metadata_too_large"),
    ],
)
def test_what_cannot_be_offered(world, change, code):
    assert world.code("alice", "offer.create", {**GIVEN, **change}) == code


def test_checks_come_in_the_documented_order(world):
    wrong = {"node_ids": ["n9"], "mode": "pair", "max_lifetime_hours": 0, "price_per_hour": 0, "gpu_count": 99}
    right = {"mode": "single", "max_lifetime_hours": 1, "node_ids": ["n1"], "gpu_count": 8, "price_per_hour": 1}
    order = ["invalid_mode", "invalid_max_lifetime_hours", "node_not_found", "offer_exceeds_nodes"]
    for code, (field, value) in zip([*order, "invalid_price_per_hour"], right.items(), strict=True):
        assert world.code("alice", "offer.create", wrong) == code
        wrong[field] = value
    assert world.ok("alice", "offer.create", wrong)


@pytest.mark.parametrize(
    "change",
    [{"gpu_count": 1}, {"tee": "none"}, {"max_lifetime_hours": 720}, {"price_per_hour": 1000}, {"mode": " Single"}],
)
def test_claiming_less_and_standing_on_the_edge_is_fine(world, change):
    assert world.ok("alice", "offer.create", {**GIVEN, "node_ids": ["n2"], **change})


@pytest.mark.parametrize("field", ["price_per_hour", "max_lifetime_hours", "gpu_count", "require_ib", "tee"])
@pytest.mark.parametrize("value", ["1", [1]])
def test_no_text_counts_as_a_number(world, field, value):
    if field != "tee" or value != "1":
        with pytest.raises(ValidationError):
            world.ok("alice", "offer.create", {**GIVEN, field: value})


@pytest.mark.parametrize("field", ["price_per_hour", "max_lifetime_hours", "gpu_count"])
def test_true_is_no_number(world, field):
    with pytest.raises(ValidationError):
        world.ok("alice", "offer.create", {**GIVEN, field: True})


@pytest.mark.parametrize("node_ids", [[], ["n1"] * 65, "n1", [1], None])
def test_node_ids_are_a_list_of_one_to_64(node_ids):
    with pytest.raises(ValidationError):
        CreateOffer.model_validate({"node_ids": node_ids})


def test_only_active_providers_list(world):
    assert world.code("carol", "offer.create", GIVEN) == "provider_not_found"
    world.fold(ProviderSuspended(provider_id=world.provider(), status="suspended", reason_code="audit"))
    assert world.code("alice", "offer.create", GIVEN) == "provider_not_active"


@pytest.mark.parametrize("status", ["offline", "draining", "suspended", "unseen"])
def test_nodes_that_cannot_be_offered(world, status):
    if status == "offline":
        world.fold(NodeOffline(node_id="n1", reason_code="no_heartbeat", last_seen_us=world.now_us))
    elif status == "unseen":
        world.now_us += WINDOW_US * 3 // 2
    else:
        world.fold(NodeSuspended(node_id="n1", status=status, reason_code="maintenance"))
    assert world.code("alice", "offer.create", GIVEN) == "node_not_offerable"


def test_a_rented_node_may_be_offered_for_later(world):
    world.ok("rita", "offer.rent", {}, offer_id=world.offer("n1"))
    world.now_us += 2 * WINDOW_US
    later = world.offer("n1")
    assert world.code("rob", "offer.rent", {}, offer_id=later) == "capacity_unavailable"


def test_a_node_stands_in_a_bounded_number_of_listed_offers(world):
    offers = [world.offer("n1") for _ in range(OFFERS_PER_NODE_MAX)]
    assert world.code("alice", "offer.create", GIVEN) == "too_many_offers"
    world.ok("alice", "offer.withdraw", offer_id=offers[3])
    assert world.offer("n1")


def test_withdrawing_is_for_the_owner_and_happens_once(world):
    offer_id = world.offer("n1")
    assert world.code("carol", "offer.withdraw", offer_id=offer_id) == "provider_not_found"
    assert world.code("alice", "offer.withdraw", offer_id="o9") == "offer_not_found"
    assert world.code("bob", "offer.withdraw", offer_id=offer_id) == "offer_not_owned"
    assert world.types("alice", "offer.withdraw", offer_id=offer_id) == ["offer.withdrawn"]
    pos = world.state.pos
    assert world.send("alice", "offer.withdraw", offer_id=offer_id) == Accepted((), offer_id, seq=pos)
    assert world.code("rita", "offer.rent", {}, offer_id=offer_id) == "offer_not_listed"


def test_a_leased_offer_is_withdrawn_after_its_lease(world):
    offer_id = world.offer("n1")
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=offer_id)
    assert world.code("alice", "offer.withdraw", offer_id=offer_id) == "offer_active_lease"
    world.ok("rita", "lease.terminate", lease_id=lease_id)
    assert world.state.market.offers[offer_id].status == "leased"
    assert world.types("alice", "offer.withdraw", offer_id=offer_id) == ["offer.withdrawn"]


def test_an_offer_whose_lease_is_overdue_takes_it_along(world):
    offer_id = world.offer("n1")
    lease_id = world.ok("rita", "offer.rent", {}, offer_id=offer_id)
    world.now_us += 10 * HOUR_US
    world.ok("alice", "node.heartbeat")
    assert world.types("alice", "offer.withdraw", offer_id=offer_id) == ["lease.ended", "offer.withdrawn"]
    assert world.state.market.leases[lease_id].status == "expired"


def test_offers_of_a_provider_or_a_node_are_withdrawn_once_each(world):
    both, one, other = world.offer("n1", "n2"), world.offer("n1"), world.offer("b1", hotkey="bob")
    gone = world.offer("n2")
    world.ok("alice", "offer.withdraw", offer_id=gone)
    by_provider = withdraw_offers_of(world.state, provider_id=world.provider(), reason_code="suspended")
    assert [event.offer_id for event in by_provider] == [both, one]
    by_node = withdraw_offers_of(world.state, node_ids=("n2", "b1"), reason_code="suspended", caused_by=7)
    assert [(event.offer_id, event.caused_by) for event in by_node] == [(both, 7), (other, 7)]
    world.fold(*by_node)
    assert withdraw_offers_of(world.state, node_ids=("n2", "b1"), reason_code="suspended") == ()
    assert world.state.market.listed_by_node["n1"] == (one,)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3_000_000),
        (Decimal("0.000001"), 1),
        (Decimal("1.2300000000"), 1_230_000),
        (Decimal("0.0000001"), None),
        (Decimal("1e-900"), None),
        (Decimal("1.00000000000000000000000000000000000001"), None),
        (Decimal(-1), -1_000_000),
    ],
)
def test_money_is_exact_or_refused(value, expected):
    assert micro_usd(value) == expected


def test_huge_and_tiny_numbers_stay_cheap():
    assert floor(Decimal("1e999999"), 10) == 10**31
    assert exact(Decimal("-1e999999"), 1) == -(10**30)
    assert floor(Decimal("1e-999999"), 10) == 0
    assert floor(Decimal("-1e-999999"), 10) == -1
    assert floor(Decimal("0e-999999"), 10) == 0
    assert floor(Decimal("1.9999"), 1) == 1
