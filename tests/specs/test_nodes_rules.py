"""Given what a provider did, when it speaks of a node, then that stands in the ledger or this code comes back."""

import base64
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from events.types.nodes import NodeOffline, NodeReadmitted, NodeSuspended
from events.types.policy import ProviderReadmitted, ProviderSuspended
from hypercluster.domain.codes import CODES
from hypercluster.domain.kernel import SYSTEM, Accepted
from hypercluster.domain.nodes.commands import check_private

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from market_world import WINDOW_US, World, host_key

BODY = {"gpu_model": "H100_80GB", "gpu_count": 8}
SECRET, OTHER = "hmac-sha256:" + "a" * 64, "hmac-sha256:" + "b" * 64


@pytest.fixture
def world() -> World:
    world = World()
    world.provider("alice")
    world.provider("bob")
    return world


def test_a_new_node_is_healthy_and_seen(world):
    node = world.state.nodes.nodes[world.node()]
    assert (node.status, node.last_seen_us, node.held_by) == ("healthy", world.now_us, None)
    assert node.seen_pos == world.state.pos


def test_a_stranger_registers_no_node(world):
    assert world.code("carol", "node.register", BODY) == "provider_not_found"


def test_a_suspended_provider_registers_no_node(world):
    world.fold(ProviderSuspended(provider_id=world.provider(), status="banned", reason_code="fraud"))
    assert world.code("alice", "node.register", BODY) == "provider_not_active"


def test_the_client_may_choose_the_id(world):
    assert world.node(node_id="rack-7.a") == "rack-7.a"


@pytest.mark.parametrize("node_id", ["", "..", ".", "a/b", "a b", "x" * 37, "%41"])
def test_ids_that_no_path_can_hold_are_no_ids(world, node_id):
    with pytest.raises(ValidationError):
        world.node(node_id=node_id)


def test_another_providers_id_is_refused(world):
    world.node("alice", node_id="n1")
    assert world.code("bob", "node.register", {**BODY, "node_id": "n1"}) == "node_not_owned"


def test_a_node_without_id_is_found_again_by_its_host_key(world):
    first = world.node(ssh_host_key=host_key("m1"))
    assert world.node(ssh_host_key=host_key("m1"), gpu_count=4) == first
    assert world.state.nodes.nodes[first].facts.gpu_count == 4
    assert world.node(ssh_host_key=host_key("m2")) != first
    assert world.node() != world.node()


@pytest.mark.parametrize("node_id", [None, "mine"])
def test_one_machine_is_one_node(world, node_id):
    world.node("alice", ssh_host_key=host_key("m1"))
    assert world.code("bob", "node.register", {**BODY, "ssh_host_key": host_key("m1"), "node_id": node_id}) == (
        "host_key_taken"
    )


def test_a_provider_pins_a_key_once(world):
    world.node(node_id="n1", ssh_host_key=host_key("m1"))
    body = {**BODY, "node_id": "n2", "ssh_host_key": host_key("m1")}
    assert world.code("alice", "node.register", body) == "host_key_taken"
    world.fold(NodeSuspended(node_id="n1", status="suspended", reason_code="fraud"))
    assert world.code("alice", "node.register", body) == "host_key_taken"


def test_a_key_changed_is_free_for_others(world):
    node_id = world.node("alice", ssh_host_key=host_key("m1"))
    world.node("alice", node_id=node_id, ssh_host_key=host_key("m2"))
    world.node("bob", ssh_host_key=host_key("m1"))
    assert world.code("bob", "node.register", {**BODY, "ssh_host_key": host_key("m2")}) == "host_key_taken"


def test_an_operator_frees_a_squatted_key_and_the_squatter_cannot_offer_it(world):
    squatted = world.node("bob", ssh_host_key=host_key("m1"))
    world.fold(NodeSuspended(node_id=squatted, status="suspended", reason_code="squatting"))
    own = world.node("alice", ssh_host_key=host_key("m1"))
    world.fold(NodeReadmitted(node_id=squatted, reason_code="appeal"))
    terms = {"node_ids": [squatted], "price_per_hour": 1, "max_lifetime_hours": 1}
    assert world.code("bob", "offer.create", terms) == "node_not_offerable"
    assert world.code("bob", "node.register", {**BODY, "node_id": squatted}) == "host_key_taken"
    assert world.offer(own)


@pytest.mark.parametrize("user", ["root", "", "a b", "Ubuntu", "-x", "0day", "a;b"])
def test_users_that_are_root_or_no_names(world, user):
    assert world.code("alice", "node.register", {**BODY, "ssh_user": user}) == "invalid_ssh_user"


@pytest.mark.parametrize(
    "key",
    [
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 not-base64!",
        host_key("m") + " alice@laptop",
        host_key("m").replace("ssh-ed25519", "ssh-rsa", 1),
        host_key("m").replace(" ", "  "),
        host_key("m")[:-4],
        "ssh-ed25519 " + base64.b64encode(base64.b64decode(host_key("m")[12:]) + b"\x00\x00\x00\x00").decode(),
        "ssh-rsa " + base64.b64encode(b"\0\0\0\7ssh-rsa\0\0\0\1\3\0\0\0\2\1\1").decode(),
    ],
)
def test_host_keys_that_are_not_whole(world, key):
    assert world.code("alice", "node.register", {**BODY, "ssh_host_key": key}) == "invalid_ssh_host_key"


@pytest.mark.parametrize(
    "blob",
    [
        b"\0\0\0\x13ecdsa-sha2-nistp256\0\0\0\x08nistp256\0\0\0\x41\4" + b"x" * 64,
        b"\0\0\0\7ssh-rsa\0\0\0\3\1\0\1\0\0\1\1\0" + b"\x80" * 256,
    ],
)
def test_other_host_key_algorithms(world, blob):
    algorithm = blob[4 : 4 + blob[3]].decode()
    key = f"{algorithm} {base64.b64encode(blob).decode()}"
    assert world.state.nodes.nodes[world.node(ssh_host_key=key)].facts.ssh_host_key == key


@pytest.mark.parametrize("field", ["gpu_count", "cpu_cores", "mem_gb"])
@pytest.mark.parametrize("value", [True, "8", -1])
def test_numbers_are_numbers(world, field, value):
    with pytest.raises(ValidationError):
        world.node(**{field: value})


def test_a_blank_model_is_refused(world):
    assert world.code("alice", "node.register", {**BODY, "gpu_model": "  "}) == "invalid_gpu_model"


def test_decimals_become_integers_rounded_down(world):
    facts = world.state.nodes.nodes[world.node(mem_gb=0.1234, inventory={"ib_rate_gbps": 99.999999999})].facts
    assert (facts.mem_mb, facts.ib_rate_bytes_per_s) == (123, 12_499_999_999)


@pytest.mark.parametrize(
    ("inventory", "has_ib", "rate"),
    [
        ({}, False, None),
        ({"has_ib": True}, True, None),
        ({"ib": True}, True, None),
        ({"has_ib": 1, "ib": "yes"}, False, None),
        ({"ib_devices": ["mlx5_0"]}, True, None),
        ({"ib_devices": []}, False, None),
        ({"ib_rate_gbps": 200}, True, 25_000_000_000),
        ({"ib_rate_gbps": 0}, False, 0),
        ({"ib_rate_gbps": True}, False, None),
        ({"ib_rate_gbps": 100, "ib_devices": [{"name": "a", "rate_gbps": 400}]}, True, 50_000_000_000),
        ({"ib_rate_gbps": 100, "ib_devices": [{"rate_gbps": 400, "state": "Down"}]}, True, 12_500_000_000),
        ({"ib_devices": [{"rate_gbps": 100, "state": "up"}, {"rate_gbps": 200, "state": ""}]}, True, 25_000_000_000),
    ],
)
def test_infiniband_is_read_from_the_inventory(world, inventory, has_ib, rate):
    facts = world.state.nodes.nodes[world.node(inventory=inventory)].facts
    assert (facts.has_ib, facts.ib_rate_bytes_per_s) == (has_ib, rate)


def test_an_impossible_rate_is_refused(world):
    body = {**BODY, "inventory": {"ib_devices": [{"rate_gbps": 100_001}]}}
    assert world.code("alice", "node.register", body) == "invalid_inventory"


def test_nobody_claims_what_only_a_probe_may_say(world):
    inventory = {"gpu_probe_status": "verified", "measured_gpu_count": 8, "cpu": "EPYC"}
    assert world.state.nodes.nodes[world.node(inventory=inventory)].facts.inventory == '{"cpu":"EPYC"}'


def test_the_inventory_has_a_limit(world):
    assert world.node(inventory={"note": "x" * 4085})
    body = {**BODY, "inventory": {"note": "x" * 4086}}
    assert world.code("alice", "node.register", body) == "inventory_too_large"


def test_what_is_left_out_keeps_its_value(world):
    node_id = world.node(ssh_endpoint=SECRET, cpu_cores=4, inventory={"ib": True}, tee_capability="tdx")
    world.node(node_id=node_id, gpu_count=2)
    facts = world.state.nodes.nodes[node_id].facts
    assert (facts.ssh_endpoint, facts.cpu_cores, facts.has_ib) == (SECRET, 4, True)
    assert (facts.gpu_count, facts.tee_capability) == (2, "none")


def test_the_same_claims_again_change_nothing(world):
    node_id = world.node(node_id="n1")
    pos = world.state.pos
    again = world.send("alice", "node.register", {**BODY, "node_id": node_id})
    assert again == Accepted((), node_id, created=False, seq=pos)


@pytest.mark.parametrize(
    "change",
    [
        {"gpu_count": 4},
        {"gpu_model": "T4_16GB"},
        {"tee_capability": "tdx"},
        {"inventory": {"ib": False}},
        {"cpu_cores": 2},
        {"ssh_endpoint": OTHER},
        {"ssh_user": "other"},
        {"ssh_host_key": host_key("other")},
    ],
)
def test_a_leased_node_keeps_its_hardware_facts(change):
    world = World()
    facts = {"ssh_endpoint": SECRET, "ssh_user": "miner", "ssh_host_key": host_key("m"), "inventory": {"ib": True}}
    node_id, lease_id = world.leased(**facts)
    body = {**BODY, "node_id": node_id, **change}
    assert world.code("alice", "node.register", body) == "node_under_lease"
    assert world.types("alice", "node.register", {**BODY, "node_id": node_id, "location_hint": "fi"}) == [
        "node.updated"
    ]
    world.ok("rita", "lease.terminate", lease_id=lease_id)
    assert world.types("alice", "node.register", body) == ["node.updated"]


def test_facts_that_shrink_withdraw_the_offers_that_claim_more(world):
    node_id = world.node(inventory={"ib": True})
    big, small, ib = world.offer(node_id), world.offer(node_id, gpu_count=1), world.offer(node_id, require_ib=True)
    assert world.types("alice", "node.register", {**BODY, "node_id": node_id, "gpu_count": 4}) == [
        "node.updated",
        "offer.withdrawn",
        "offer.withdrawn",
    ]
    offers = world.state.market.offers
    assert [offers[one].status for one in (big, small, ib)] == ["withdrawn", "listed", "withdrawn"]
    ib = world.offer(node_id, require_ib=True)
    world.node(node_id=node_id, gpu_count=4, inventory={})
    assert (offers[small].status, offers[ib].status) == ("listed", "withdrawn")


def test_a_hotkey_has_at_most_256_nodes(world):
    for number in range(256):
        world.node(node_id=f"n{number}")
    assert world.code("alice", "node.register", BODY) == "too_many_nodes"
    assert world.types("alice", "node.register", {**BODY, "node_id": "n7", "gpu_count": 4}) == ["node.updated"]
    world.node("bob")


def test_heartbeats_are_recorded_once_per_half_window(world):
    node_id = world.node()
    world.now_us += WINDOW_US // 2 - 1
    assert world.types("alice", "node.heartbeat", {"node_id": node_id}) == []
    world.now_us += 1
    assert world.types("alice", "node.heartbeat") == ["node.seen"]
    assert world.types("alice", "node.heartbeat") == []


def test_a_heartbeat_brings_an_offline_node_back_at_once(world):
    node_id = world.node()
    world.fold(NodeOffline(node_id=node_id, reason_code="no_heartbeat", last_seen_us=world.now_us))
    assert world.types("alice", "node.heartbeat") == ["node.seen"]
    assert world.state.nodes.nodes[node_id].status == "healthy"


@pytest.mark.parametrize("status", ["suspended", "draining"])
def test_no_heartbeat_and_no_registration_undoes_an_operators_word(world, status):
    node_id = world.node()
    world.fold(NodeSuspended(node_id=node_id, status=status, reason_code="maintenance"))
    world.now_us += WINDOW_US
    world.ok("alice", "node.heartbeat")
    world.node(node_id=node_id, gpu_count=4)
    world.now_us += 2 * WINDOW_US
    assert world.types(SYSTEM, "node.reclaim", {"node_id": node_id}) == []
    assert world.state.nodes.nodes[node_id].status == status
    world.fold(NodeReadmitted(node_id=node_id, reason_code="done"))
    assert world.state.nodes.nodes[node_id].status == "healthy"


def test_whose_heartbeat_it_is(world):
    node_id = world.node()
    assert world.code("carol", "node.heartbeat") == "provider_not_found"
    assert world.code("bob", "node.heartbeat") == "no_nodes"
    assert world.code("bob", "node.heartbeat", {"node_id": node_id}) == "node_not_owned"
    assert world.code("bob", "node.heartbeat", {"node_id": "n9"}) == "node_not_found"


def test_reclaim_takes_a_silent_node_offline_after_one_and_a_half_windows(world):
    node_id = world.node()
    seen_us = world.now_us
    world.now_us += WINDOW_US * 3 // 2 - 1
    assert world.code(SYSTEM, "node.reclaim", {"node_id": node_id}) == "not_due"
    world.now_us += 1
    assert world.code(SYSTEM, "node.reclaim", {"node_id": node_id, "last_seen_us": seen_us - 1}) == "not_due"
    assert world.types(SYSTEM, "node.reclaim", {"node_id": node_id, "last_seen_us": seen_us}) == ["node.offline"]
    assert world.state.nodes.nodes[node_id].status == "offline"
    assert world.types(SYSTEM, "node.reclaim", {"node_id": node_id}) == []
    assert world.code(SYSTEM, "node.reclaim", {"node_id": "n9"}) == "node_not_found"


def test_a_lease_protects_its_node_from_reclaim():
    world = World()
    node_id, _ = world.leased()
    world.now_us += 10 * WINDOW_US
    assert world.code(SYSTEM, "node.reclaim", {"node_id": node_id}) == "node_under_lease"


@pytest.mark.parametrize(
    "endpoint",
    [
        "gpu.example.org",
        "gpu.example.org:2222",
        "192.0.2.7",
        "192.0.2.7:22",
        "[2001:db8::7]",
        "[2001:db8::7]:22",
        "a_b",
    ],
)
def test_endpoints(endpoint):
    assert check_private("node.register", {"ssh_endpoint": endpoint}) is None


NO_HOSTS = ("", " ", "a b", "-x", "a..b", "user@host", "ssh://host", "host/path", "host\n", "x" * 254, "é.org")
NO_ADDRESSES = ("2001:db8::7", "[::1", "[v6]", "[::1%eth0]")
NO_PORTS = ("host:", "host:0", "host:65536", "host:22:22", "host:२२", "[::1]:")


@pytest.mark.parametrize("endpoint", [*NO_HOSTS, *NO_ADDRESSES, *NO_PORTS])
def test_what_is_no_endpoint(endpoint):
    refused = check_private("node.register", {"ssh_endpoint": endpoint})
    assert refused is not None
    assert (refused.code, refused.field) == ("invalid_ssh_endpoint", "ssh_endpoint")


def test_private_texts_have_limits_before_they_are_sealed():
    assert check_private("lease.terminate", {"reason": "x" * 256}) is None
    assert check_private("lease.terminate", {"reason": "x" * 257}).code == "text_too_long"
    assert check_private("node.register", {"hostname": "x" * 257}).code == "text_too_long"
    assert check_private("node.register", {"ssh_endpoint": 7, "hostname": None}) is None
    assert check_private("offer.create", {"hostname": "x" * 999}) is None


def test_a_readmitted_provider_may_register_again(world):
    provider_id = world.provider()
    world.fold(ProviderSuspended(provider_id=provider_id, status="suspended", reason_code="audit"))
    world.fold(ProviderReadmitted(provider_id=provider_id, reason_code="passed"))
    assert world.node()


def test_every_refusal_of_this_file_stands_in_the_table():
    names = {"provider_not_active", "node_not_owned", "host_key_taken", "too_many_nodes", "node_under_lease", "not_due"}
    assert {CODES[name].status for name in names} == {403, 409}
