"""Operators' rules: who may, when a policy takes effect, what a list may hold, what a suspension ends."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from events.codec import encode
from events.types.market import LeaseEnded, LeaseStarted, OfferListed, OfferWithdrawn
from events.types.policy import MetagraphAdopted, MetagraphPart, Policy, PolicyAdopted
from hypercluster.domain.codes import CODES
from hypercluster.domain.kernel import RULES, US_PER_S, Accepted, Refused, digest_of
from hypercluster.domain.policy.check import check_policy
from hypercluster.domain.policy.epochs import edge_for, epoch_of, next_edge_us
from hypercluster.domain.policy.internal import BeginPolicy, OpenLedger
from hypercluster.domain.policy.release import POLICY_V1, SIM_POLICY, policy_digest
from projections.fold import State
from projections.folds.policy import PolicyRecord
from tests.support.command_world import ALICE, AUDIENCE, BOB, EVE, OPERATOR, START_US, Person, World, picture

V2 = replace(POLICY_V1, version=2, weight_dust_ppm=2)
EDGE_US = -(-START_US // (360 * US_PER_S)) * 360 * US_PER_S
ROUTES = {
    "/v1/operator/policy": {"policy": msgspec.to_builtins(V2)},
    "/v1/operator/metagraph": {"netuid": 1, "block": 1, "entries": []},
    "/v1/operator/suspend": {"provider_id": "p", "reason_code": "fraud"},
    "/v1/operator/readmit": {"provider_id": "p", "reason_code": "fraud"},
    "/v1/operator/drain": {"provider_id": "p", "reason_code": "fraud"},
    "/v1/operator/operators": {"operators": [EVE.hotkey]},
    "/v1/operator/clock": {},
}


def adopt(world, policy, person=OPERATOR):
    return world.post(person, "/v1/operator/policy", {"policy": msgspec.to_builtins(policy)})


@pytest.fixture
def world():
    return World()


# who may


@pytest.mark.parametrize("path", ROUTES)
def test_strangers_may_do_nothing(world, path):
    before = picture(world.state)
    assert world.post(EVE, path, ROUTES[path]).code == "not_operator"
    assert picture(world.state) == before


def test_operators_hand_over(world):
    assert world.post(OPERATOR, "/v1/operator/operators", {"operators": [ALICE.hotkey]}).types == ["operators.changed"]
    assert adopt(world, V2).code == "not_operator"
    assert adopt(world, V2, ALICE).types == ["policy.adopted"]
    again = world.post(ALICE, "/v1/operator/operators", {"operators": [ALICE.hotkey]})
    assert again.types == ["command.noted"], "the same list changes nothing"


@pytest.mark.parametrize("operators", [[], [ALICE.hotkey] * 2, ["alice"], [Person(n).hotkey for n in range(10, 43)]])
def test_a_ledger_is_never_without_sound_operators(world, operators):
    assert world.post(OPERATOR, "/v1/operator/operators", {"operators": operators}).code == "operators_invalid"


def test_accepting_the_clock_notes_both_times(world):
    last_us = world.state.at_us
    world.now_us += 3_600 * US_PER_S
    (recorded,) = world.post(OPERATOR, "/v1/operator/clock").recorded
    assert (recorded.event.wall_us, recorded.event.last_event_us) == (world.now_us, last_us)


# how a ledger begins


def test_the_first_three_events(world):
    info = world.state.ledger.info["ledger"]
    assert (info.operators, info.audience, info.profile, info.rules) == (
        (OPERATOR.hotkey,),
        AUDIENCE,
        "production",
        RULES,
    )
    assert len(info.seed) == 32
    policy = world.state.policy.policy_at(START_US)
    assert (policy.policy, policy.effective_us, policy.pos) == (POLICY_V1, START_US, 2)
    assert policy.digest == policy_digest(POLICY_V1) == digest_of(encode(msgspec.to_builtins(POLICY_V1)))


def opening(**changes):
    facts = {
        "origin": "o",
        "profile": "production",
        "public_key": "0a" * 32,
        "slug": "hypercluster",
        "audience": AUDIENCE,
        "operators": (OPERATOR.hotkey,),
        "release": "test",
    }
    return OpenLedger(**(facts | changes))


def test_a_ledger_begins_once(world):
    assert world.internal("ledger.open", opening(), cause=0).code == "ledger_exists"
    begun = BeginPolicy(policy=POLICY_V1, rules=RULES, release="test")
    assert world.internal("policy.begin", begun, cause=1).code == "ledger_exists"


@pytest.mark.parametrize(
    ("profile", "operators", "code"),
    [("production", (), "operators_invalid"), ("production", ("x",), "operators_invalid"), ("sim", (), None)],
)
def test_a_production_ledger_needs_operators(world, profile, operators, code):
    world.state, world.versions = State(), {}
    assert world.internal("ledger.open", opening(profile=profile, operators=operators), cause=0).code == code


# policies


def test_a_policy_takes_effect_at_the_next_epoch_edge(world):
    outcome = adopt(world, V2)
    event = outcome.recorded[0].event
    assert isinstance(event, PolicyAdopted)
    assert event.effective_us == EDGE_US
    assert outcome.subject == event.digest == policy_digest(V2)
    assert world.state.policy.policy_at(EDGE_US - 1).policy == POLICY_V1
    assert world.state.policy.policy_at(EDGE_US).policy == V2
    assert world.state.policy.policy_by_digest(event.digest).policy == V2


def test_on_an_edge_the_next_one_counts(world):
    world.now_us = EDGE_US
    assert adopt(world, V2).recorded[0].event.effective_us == EDGE_US + 360 * US_PER_S


def test_the_same_policy_again_changes_nothing(world):
    first = adopt(world, V2)
    again = adopt(world, V2)
    assert again.types == ["command.noted"]
    assert isinstance(again.decision, Accepted)
    assert again.decision.seq == first.recorded[0].pos


def test_a_version_is_used_once(world):
    refused = adopt(world, replace(V2, version=1))
    assert (refused.code, refused.decision.field) == ("policy_version_used", "policy.version")


def test_a_policy_that_waits_can_be_replaced_before_its_edge(world):
    adopt(world, V2)
    third = replace(V2, version=3)
    assert adopt(world, third).recorded[0].event.effective_us == EDGE_US
    assert world.state.policy.policy_at(EDGE_US).policy == third


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch_s", 0),
        ("signature_window_s", 3_601),
        ("credit_slot_s", 0),
        ("window_attempts", 0),
        ("spam_free_fail_ppm", 1_000_000),
        ("supply_share_ppm", 700_001),
        ("weight_top_k", 257),
        ("weight_cap_ppm", 0),
        ("tee_bonus_tdx_ppm", 999_999),
        ("credit_requires_known_owner", 2),
        ("image_allowlist", ("a", "a")),
        ("class_values", (*POLICY_V1.class_values, POLICY_V1.class_values[0])),
        ("expected_bandwidth", SIM_POLICY.expected_bandwidth[:1] * 2),
        ("expected_bandwidth", (replace(SIM_POLICY.expected_bandwidth[0], bytes_per_s=0),)),
    ],
)
def test_a_policy_out_of_range_is_refused_by_name(world, name, value):
    refused = adopt(world, replace(V2, **{name: value}))
    assert refused.code == "policy_invalid"
    assert refused.decision.field == f"policy.{name}"
    assert CODES["policy_invalid"].status == 422


def test_every_number_of_a_policy_has_a_range():
    tables = {"image_allowlist", "class_values", "expected_bandwidth"}
    for name in {field.name for field in msgspec.structs.fields(Policy)} - tables:
        assert check_policy(replace(V2, **{name: -1})) is not None, name
        assert check_policy(replace(V2, **{name: 2**52})) is not None, name


@pytest.mark.parametrize(
    "change", [{"epoch_s": "360"}, {"epoch_s": True}, {"epoch_s": 1.5}, {"surprise": 1}, {"epoch_s": None}]
)
def test_a_policy_of_another_shape_is_no_body(world, change):
    with pytest.raises(ValueError, match="policy"):
        world.post(OPERATOR, "/v1/operator/policy", {"policy": msgspec.to_builtins(V2) | change})


def test_the_numbers_of_the_policy_page():
    values = {row.gpu_class: row.value_ppm for row in POLICY_V1.class_values}
    assert (values["H100_80GB"], values["T4_16GB"], values["H200_141GB"]) == (1_000_000, 88_353, 1_401_606)
    assert len(values) == 15
    differing = {name for name in Policy.__struct_fields__ if getattr(POLICY_V1, name) != getattr(SIM_POLICY, name)}
    assert differing == {
        "epoch_s",
        "snapshot_min_interval_s",
        "gang_timeout_s",
        "kill_grace_s",
        "capacity_wait_s",
        "credit_slot_s",
        "credit_requires_known_owner",
        "unverified_value_ppm",
        "expected_bandwidth",
    }
    assert check_policy(POLICY_V1) is None
    assert check_policy(SIM_POLICY) is None


# epochs


def test_epochs_are_numbered_by_unix_time(world):
    assert epoch_of(world.state, START_US) == START_US // US_PER_S // 360
    assert next_edge_us(world.state, START_US) == EDGE_US
    assert epoch_of(world.state, EDGE_US) == epoch_of(world.state, EDGE_US - 1) + 1


@pytest.mark.parametrize("epoch_s", [5, 100, 720, 1_000])
def test_a_changed_length_starts_at_its_own_multiple_and_numbers_go_on(world, epoch_s):
    effective_us = adopt(world, replace(V2, epoch_s=epoch_s)).recorded[0].event.effective_us
    assert effective_us % (epoch_s * US_PER_S) == 0
    assert EDGE_US <= effective_us < EDGE_US + epoch_s * US_PER_S
    last, first = epoch_of(world.state, effective_us - 1), epoch_of(world.state, effective_us)
    assert first > last
    if epoch_s < 360:
        assert first == effective_us // US_PER_S // epoch_s
    else:
        assert first == last + 1
    assert next_edge_us(world.state, effective_us) == effective_us + epoch_s * US_PER_S
    assert epoch_of(world.state, effective_us + epoch_s * US_PER_S) == first + 1


@given(st.lists(st.tuples(st.integers(1, 2_000), st.integers(0, 5_000)), max_size=6), st.integers(1, 2_000))
def test_numbers_never_fall_and_edges_agree_with_them(changes, first_s):
    """Any history of lengths and waits between adoptions, through the same function that the decider calls."""
    records = [PolicyRecord("d", START_US, 2, replace(POLICY_V1, epoch_s=first_s))]
    at_us, times = START_US, [START_US]
    for length_s, wait_s in changes:
        at_us += wait_s * US_PER_S
        effective_us = edge_for(records, length_s, at_us)
        assert effective_us > at_us
        assert effective_us >= records[-1].effective_us
        records.append(PolicyRecord("d", effective_us, 3, replace(POLICY_V1, epoch_s=length_s)))
        times += [at_us, effective_us - 1, effective_us, effective_us + 1]
    numbers = [epoch_of(records, time_us) for time_us in sorted(times)]
    assert numbers == sorted(numbers)
    for record in records[1:]:
        assert epoch_of(records, record.effective_us) > epoch_of(records, record.effective_us - 1)
    edge_us = next_edge_us(records, max(times))
    assert epoch_of(records, edge_us) == epoch_of(records, edge_us - 1) + 1


# metagraph lists


def neurons(count):
    return [{"uid": uid, "hotkey": Person(uid + 1).hotkey, "coldkey": Person(uid + 101).hotkey} for uid in range(count)]


def metagraph(world, entries, block=7, netuid=1):
    return world.post(OPERATOR, "/v1/operator/metagraph", {"netuid": netuid, "block": block, "entries": entries})


@pytest.mark.parametrize(("count", "parts"), [(0, 0), (1, 1), (64, 1), (65, 2), (130, 3)])
def test_a_list_comes_in_parts_of_64(world, count, parts):
    entries = [{"uid": uid, "hotkey": Person(uid + 1).hotkey, "coldkey": BOB.hotkey} for uid in range(count)]
    outcome = metagraph(world, entries)
    adopted = outcome.recorded[0].event
    assert isinstance(adopted, MetagraphAdopted)
    assert (adopted.count, adopted.parts, len(outcome.recorded)) == (count, parts, parts + 1)
    assert all(isinstance(one.event, MetagraphPart) for one in outcome.recorded[1:])
    found = world.state.policy.metagraph_at(world.now_us)
    assert found is not None
    assert found.owners == {entry["hotkey"]: entry["coldkey"] for entry in entries}
    assert not world.state.policy.parts
    assert world.state.policy.metagraph_at(world.now_us - 1) is None


def test_the_order_of_the_entries_does_not_matter(world):
    first = metagraph(world, neurons(5))
    again = metagraph(world, neurons(5)[::-1])
    assert again.subject == first.subject
    assert again.types == ["command.noted"]


def test_a_later_block_replaces_the_list_and_an_earlier_one_is_refused(world):
    metagraph(world, neurons(2))
    world.now_us += US_PER_S
    assert metagraph(world, neurons(1), block=7).code == "metagraph_outdated"
    assert metagraph(world, neurons(1), block=6).code == "metagraph_outdated"
    assert metagraph(world, neurons(1), block=8, netuid=2).code == "metagraph_outdated"
    assert metagraph(world, neurons(1), block=8).types == ["metagraph.adopted", "metagraph.part"]
    assert len(world.state.policy.metagraph_at(world.now_us).owners) == 1
    assert len(world.state.policy.metagraph_at(world.now_us - 1).owners) == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"uid": 0}, "entries.1.uid"),
        ({"hotkey": Person(1).hotkey}, "entries.1.hotkey"),
        ({"hotkey": "15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5"}, "entries.1.hotkey"),
        ({"hotkey": "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"}, "entries.1.hotkey"),
        ({"coldkey": "nobody"}, "entries.1.coldkey"),
    ],
)
def test_a_malformed_list_is_refused_by_place(world, change, field):
    first, second = neurons(2)
    refused = metagraph(world, [first, second | change])
    assert (refused.code, refused.decision.field) == ("metagraph_invalid", field)


# suspension


def lease(world, number, node_ids, provider_id):
    """An offer and a lease on these nodes, as events."""
    offer_id, lease_id = f"offer-{number}", f"lease-{number}"
    listed = OfferListed(
        offer_id=offer_id,
        provider_id=provider_id,
        node_ids=node_ids,
        mode="single" if len(node_ids) == 1 else "cluster",
        gpu_model="H100",
        gpu_count=8,
        require_ib=False,
        tee="none",
        price_micro_usd_h=3_600_000,
        max_lifetime_us=3_600 * US_PER_S,
    )
    started = LeaseStarted(
        lease_id=lease_id,
        pod_id=f"pod-{number}",
        offer_id=offer_id,
        renter=BOB.hotkey,
        provider_id=provider_id,
        provider=ALICE.hotkey,
        node_ids=node_ids,
        mode=listed.mode,
        price_micro_usd_h=3_600_000,
        lifetime_us=3_600 * US_PER_S,
        ends_at_us=world.now_us + 3_600 * US_PER_S,
    )
    command, record = world.signed(BOB, "POST", "/v1/providers/heartbeat", {})
    world.record(command, record, (listed, started))
    return lease_id


@pytest.fixture
def market():
    """Alice's three nodes: the first under lease, the second offered, the third idle."""
    world = World()
    provider_id = world.post(ALICE, "/v1/providers/register").subject
    node = {"gpu_model": "H100_80GB", "gpu_count": 8}
    nodes = [world.post(ALICE, "/v1/nodes", node | {"node_id": f"node-{n}"}).subject for n in range(3)]
    lease(world, 1, (nodes[0],), provider_id)
    body = {"node_ids": [nodes[1]], "mode": "single", "price_per_hour": 2, "max_lifetime_hours": 10}
    offer_id = world.post(ALICE, "/v1/offers", body).subject
    return world, provider_id, nodes, offer_id


def act(world, verb, **body):
    return world.post(OPERATOR, f"/v1/operator/{verb}", {"reason_code": "fraud", **body})


@pytest.mark.parametrize(("ban", "status"), [(False, "suspended"), (True, "banned")])
def test_suspending_a_provider_withdraws_its_offers_and_ends_its_leases(market, ban, status):
    world, provider_id, nodes, offer_id = market
    world.now_us += 600 * US_PER_S
    outcome = act(world, "suspend", provider_id=provider_id, ban=ban)
    assert outcome.types[:3] == ["provider.suspended", "offer.withdrawn", "lease.ended"]
    withdrawn, ended = outcome.recorded[1].event, outcome.recorded[2].event
    assert isinstance(withdrawn, OfferWithdrawn)
    assert isinstance(ended, LeaseEnded)
    assert withdrawn.offer_id == offer_id
    assert (ended.lease_id, ended.status, ended.reason_code) == ("lease-1", "failed", f"provider_{status}")
    assert ended.amount_micro_usd == 600_000, "billed up to the suspension"
    assert world.state.market.providers[provider_id].status == status
    assert world.state.market.leases["lease-1"].status == "failed"
    again = act(world, "suspend", provider_id=provider_id, ban=ban)
    assert again.types == ["command.noted"]
    assert (
        world.post(
            ALICE,
            "/v1/offers",
            {"node_ids": [nodes[2]], "mode": "single", "price_per_hour": 2, "max_lifetime_hours": 1},
        ).code
        == "provider_not_active"
    )


def test_a_suspended_provider_can_be_banned_and_not_the_reverse(market):
    world, provider_id, _, _ = market
    act(world, "suspend", provider_id=provider_id)
    assert act(world, "suspend", provider_id=provider_id, ban=True).types == ["provider.suspended"]
    assert act(world, "suspend", provider_id=provider_id).types == ["command.noted"]
    assert world.state.market.providers[provider_id].status == "banned"
    assert act(world, "readmit", provider_id=provider_id).types == ["provider.readmitted"]
    assert world.state.market.providers[provider_id].status == "active"
    assert act(world, "readmit", provider_id=provider_id).types == ["command.noted"]


def test_suspending_a_node_ends_its_lease_only(market):
    world, _, nodes, offer_id = market
    outcome = act(world, "suspend", node_id=nodes[0])
    assert outcome.types[:2] == ["node.suspended", "lease.ended"]
    assert world.state.nodes.nodes[nodes[0]].status == "suspended"
    assert world.state.market.offers[offer_id].status == "listed"
    assert act(world, "suspend", node_id=nodes[0]).types == ["command.noted"]
    assert act(world, "readmit", node_id=nodes[0]).types == ["node.readmitted"]


def test_one_lease_over_several_nodes_ends_once():
    world = World()
    provider_id = world.post(ALICE, "/v1/providers/register").subject
    node = {"gpu_model": "H100_80GB", "gpu_count": 8}
    nodes = tuple(world.post(ALICE, "/v1/nodes", node | {"node_id": f"node-{n}"}).subject for n in range(3))
    lease(world, 1, nodes, provider_id)
    assert act(world, "suspend", provider_id=provider_id).types.count("lease.ended") == 1


def test_draining_lets_leases_run_out(market):
    world, provider_id, nodes, offer_id = market
    outcome = act(world, "drain", provider_id=provider_id)
    assert outcome.types == ["node.suspended"] * 3 + ["offer.withdrawn"]
    assert {one.event.status for one in outcome.recorded[:3]} == {"draining"}
    assert world.state.market.leases["lease-1"].status == "active"
    assert world.state.market.offers[offer_id].status == "withdrawn"
    assert world.state.market.providers[provider_id].status == "active"
    assert act(world, "drain", node_id=nodes[1]).types == ["command.noted"]


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("suspend", {}, "target_invalid"),
        ("suspend", {"provider_id": "a", "node_id": "b"}, "target_invalid"),
        ("suspend", {"node_id": "node-0", "ban": True}, "target_invalid"),
        ("suspend", {"provider_id": "nobody"}, "provider_not_found"),
        ("drain", {"node_id": "nothing"}, "node_not_found"),
        ("readmit", {"node_id": "nothing"}, "node_not_found"),
    ],
)
def test_targets(market, verb, body, code):
    world = market[0]
    found = act(world, verb, **body)
    assert found.code == code
    assert isinstance(found.decision, Refused)
    assert code in CODES


def test_a_suspension_can_be_taken_back(market):
    world, provider_id, _, _ = market
    before, mark = picture(world.state), world.state.mark()
    act(world, "suspend", provider_id=provider_id)
    metagraph(world, neurons(70))
    adopt(world, V2)
    world.state.rollback(mark)
    assert picture(world.state) == before
