"""Nonces, schemes, repeated requests, and which refusals are recorded: rules over the folded state."""

import dataclasses
import json

import pytest
from msgspec.structs import replace

from events.envelope import CommandRecord
from events.types.jobs import JobSubmitted
from events.types.ledger import CommandRefused
from hypercluster.domain.identity import gate
from hypercluster.domain.kernel import US_PER_S, Accepted, Refused, digest_of
from hypercluster.domain.policy.release import POLICY_V1
from projections.folds.identity import BUCKET_US, DAY_US, MARGIN_US
from tests.support.command_world import ALICE, BOB, EVE, OPERATOR, Person, World, picture

PROVIDERS = "/v1/providers/register"
NONCE = "nonce-of-the-first-request"
MISSING = "/v1/leases/00000000-0000-0000-0000-000000000000/terminate"


def registered(*people, policy=None):
    world = World(policy=policy)
    for person in people:
        assert world.post(person, PROVIDERS).types == ["provider.registered"]
    return world


# nonces


def test_a_nonce_is_used_up_and_the_replay_names_its_event():
    world = World()
    first = world.post(ALICE, PROVIDERS, nonce=NONCE)
    again = world.post(ALICE, PROVIDERS, nonce=NONCE)
    assert again.code == "nonce_replay"
    assert again.recorded == []
    assert isinstance(again.decision, Refused)
    assert again.decision.seq == first.recorded[0].pos


def test_another_hotkey_may_use_the_same_nonce():
    world = World()
    world.post(ALICE, PROVIDERS, nonce=NONCE)
    assert world.post(BOB, PROVIDERS, nonce=NONCE).types == ["provider.registered"]


def test_a_recorded_refusal_burns_its_nonce():
    world = registered(ALICE)
    refused = world.post(ALICE, MISSING, nonce=NONCE)
    assert (refused.code, refused.types) == ("lease_not_found", ["command.refused"])
    assert world.post(ALICE, PROVIDERS, nonce=NONCE).code == "nonce_replay"


def test_what_was_not_decided_burns_nothing():
    world = registered(ALICE)
    before = picture(world.state)
    body = {"node_ids": ["x"], "mode": "galaxy", "price_per_hour": 1, "max_lifetime_hours": 1}
    assert world.post(ALICE, "/v1/offers", body, nonce=NONCE).code == "invalid_mode"
    assert picture(world.state) == before
    assert world.post(ALICE, MISSING, nonce=NONCE).code == "lease_not_found"


def test_a_nonce_is_kept_for_two_windows_and_a_margin_then_dropped_with_its_minute():
    world = World()
    world.post(ALICE, PROVIDERS, nonce=NONCE)
    keep_us = 2 * POLICY_V1.signature_window_s * US_PER_S + MARGIN_US
    world.now_us += keep_us
    world.post(BOB, PROVIDERS)
    assert world.state.identity.nonce_use(ALICE.hotkey, NONCE) is not None
    world.now_us += 2 * BUCKET_US
    world.post(EVE, PROVIDERS)
    assert world.state.identity.nonce_use(ALICE.hotkey, NONCE) is None
    assert len(world.state.identity.nonces) <= 2, "old buckets are gone"


def test_a_wider_window_of_a_later_policy_keeps_nonces_longer():
    world = World(policy=replace(POLICY_V1, signature_window_s=3_600))
    world.post(ALICE, PROVIDERS, nonce=NONCE)
    world.now_us += 7_200 * US_PER_S
    world.post(BOB, PROVIDERS)
    assert world.state.identity.nonce_use(ALICE.hotkey, NONCE) is not None


def test_a_rolled_back_command_leaves_its_nonce_unused():
    world = registered(ALICE)
    before, mark = picture(world.state), world.state.mark()
    world.now_us += BUCKET_US * 100
    world.post(ALICE, PROVIDERS, {"display_name": "a"}, nonce=NONCE)
    world.post(ALICE, MISSING)
    assert world.state.identity.nonce_use(ALICE.hotkey, NONCE) is not None
    world.state.rollback(mark)
    assert picture(world.state) == before


# schemes


def test_the_first_recorded_command_binds_the_scheme():
    world = World()
    key = Person(9, "ed25519")
    world.post(key, PROVIDERS)
    assert world.state.identity.keys[key.hotkey].scheme == "ed25519"
    command, _ = world.signed(key, "POST", PROVIDERS, {})
    assert gate.gate(world.state, command, world.now_us) is None
    refused = gate.gate(world.state, dataclasses.replace(command, scheme="sr25519"), world.now_us)
    assert refused is not None
    assert refused.code == "scheme_mismatch"


def test_accepted_commands_are_counted_and_refused_ones_are_not():
    world = registered(ALICE)
    world.post(ALICE, MISSING)
    key = world.state.identity.keys[ALICE.hotkey]
    assert (key.accepted, key.first_pos) == (1, 4)


# repeated requests


def job(**changes):
    body = {
        "image_digest": "img@sha256:" + "0a" * 32,
        "entrypoint": ["true"],
        "world_size": 1,
        "nnodes": 1,
        "nproc_per_node": 1,
        "timeout_s": 60,
        "resource": {},
        "client_request_id": "once",
    }
    return body | changes


@pytest.fixture
def sim():
    world = World("sim")
    return world, world.post(ALICE, "/v1/jobs", job())


def test_the_same_request_again_answers_the_first_object(sim):
    world, first = sim
    assert first.types[0] == "job.submitted"
    again = world.post(ALICE, "/v1/jobs", job())
    assert again.types == ["command.noted"]
    assert isinstance(again.decision, Accepted)
    assert (again.subject, again.decision.created) == (first.subject, False)
    assert again.decision.seq == first.recorded[0].pos


def test_another_body_under_the_same_id_is_a_conflict(sim):
    world, first = sim
    refused = world.post(ALICE, "/v1/jobs", job(timeout_s=61))
    assert (refused.code, refused.types) == ("request_id_conflict", ["command.refused"])
    assert isinstance(refused.decision, Refused)
    assert refused.decision.seq == first.recorded[0].pos
    assert world.post(ALICE, "/v1/jobs", job()).subject == first.subject, "the first answer stays"


def test_ids_of_other_hotkeys_and_other_ids_are_independent(sim):
    world, first = sim
    assert world.post(BOB, "/v1/jobs", job()).subject != first.subject
    assert world.post(ALICE, "/v1/jobs", job(client_request_id="twice")).subject != first.subject
    assert world.post(ALICE, "/v1/jobs", job(client_request_id=None)).types[0] == "job.submitted"


def test_a_refused_create_does_not_take_the_id():
    world = registered(ALICE)
    assert world.post(ALICE, "/v1/jobs", job(lease_id="no-such-lease")).code == "lease_not_found"
    assert not world.state.identity.requests


def test_the_id_of_a_body_in_a_blob_comes_from_the_event(sim):
    world, _ = sim
    command, record = world.signed(BOB, "POST", "/v1/jobs", job(client_request_id="big"))
    blob = digest_of(command.body_text.encode())
    kept = CommandRecord(
        kind=record.kind,
        origin=record.origin,
        received_us=record.received_us,
        body_blob=blob,
        text=record.text,
        scheme=record.scheme,
        signature=record.signature,
    )
    submitted = world.state.jobs.jobs[next(iter(world.state.jobs.jobs))]
    event = JobSubmitted(job_id="job-b", submitter=BOB.hotkey, spec=submitted.spec, client_request_id="big")
    world.record(command, kept, (event,))
    again, _ = world.signed(BOB, "POST", "/v1/jobs", job(client_request_id="big"))
    found = gate.request_replay(world.state, again)
    assert isinstance(found, Accepted)
    assert found.subject == "job-b"


def test_the_same_id_and_body_on_another_path_is_a_conflict(sim):
    world, first = sim
    command, _ = world.signed(ALICE, "POST", "/v1/jobs", job())
    key = (ALICE.hotkey, command.kind, "once")
    world.state.identity.requests[key] = replace(world.state.identity.requests[key], path="/v1/offers/one/rent")
    same = dataclasses.replace(command, path={"offer_id": "one"})
    other = dataclasses.replace(command, path={"offer_id": "two"})
    assert isinstance(gate.request_replay(world.state, same), Accepted)
    found = gate.request_replay(world.state, other)
    assert isinstance(found, Refused)
    assert (found.code, found.seq) == ("request_id_conflict", first.recorded[0].pos)


# what is recorded


def test_a_strangers_refusal_keeps_its_code_and_is_not_recorded():
    world = World()
    refused = world.post(EVE, MISSING)
    assert (refused.code, refused.recorded) == ("lease_not_found", [])
    assert not gate.budget_empty(world.state, EVE.hotkey, world.now_us)


def test_a_hotkey_of_the_metagraph_is_known():
    world = World()
    entries = [{"uid": 0, "hotkey": EVE.hotkey, "coldkey": BOB.hotkey}]
    world.post(OPERATOR, "/v1/operator/metagraph", {"netuid": 1, "block": 7, "entries": entries})
    assert world.post(EVE, MISSING).types == ["command.refused"]
    assert world.post(BOB, MISSING).recorded == [], "a coldkey is not a hotkey of the list"


def test_the_bucket_empties_and_refills():
    world = registered(ALICE)
    for _ in range(POLICY_V1.refusal_bucket):
        assert world.post(ALICE, MISSING).types == ["command.refused"]
    assert (world.post(ALICE, MISSING).code, world.post(ALICE, MISSING).recorded) == ("too_many_refusals", [])
    assert gate.budget_empty(world.state, ALICE.hotkey, world.now_us)
    world.now_us += US_PER_S - 1
    assert world.post(ALICE, MISSING).code == "too_many_refusals"
    world.now_us += 1
    assert world.post(ALICE, MISSING).types == ["command.refused"], "60 a minute is one a second"
    assert world.post(ALICE, MISSING).code == "too_many_refusals"
    world.now_us += 600 * US_PER_S
    assert world.state.identity.milli_tokens(ALICE.hotkey, world.now_us) == 120_000, "never above the bucket"


def test_an_empty_bucket_does_not_stop_what_is_accepted():
    world = registered(ALICE, policy=replace(POLICY_V1, refusal_bucket=0))
    assert world.post(ALICE, PROVIDERS, {"display_name": "a"}).types == ["provider.named"]
    again = world.post(ALICE, PROVIDERS, {"display_name": "a"})
    assert (again.code, again.recorded) == (None, []), "a no-op is answered, unrecorded"
    assert world.post(ALICE, MISSING).code == "too_many_refusals"


def test_no_ops_cost_a_token_too():
    world = registered(ALICE)
    assert world.post(ALICE, PROVIDERS).types == ["command.noted"]
    assert world.state.identity.milli_tokens(ALICE.hotkey, world.now_us) == 119_000


def test_a_heartbeat_that_changes_nothing_is_never_noted():
    world = registered(ALICE)
    beat = world.post(ALICE, "/v1/providers/heartbeat")
    assert (beat.code, beat.recorded) == (None, [])
    assert world.state.identity.milli_tokens(ALICE.hotkey, world.now_us) == 120_000


def test_the_days_bytes_are_counted_and_end_recording_without_another_code():
    world = registered(ALICE, policy=replace(POLICY_V1, refusal_bytes_per_day=1_500))
    first = world.post(ALICE, MISSING)
    day = world.now_us // DAY_US
    assert world.state.identity.refused_bytes == {day: len(first.recorded[0].entry)}
    while world.state.identity.refused_bytes[day] < 1_500:
        assert world.post(ALICE, MISSING).types == ["command.refused"]
    last = world.post(ALICE, MISSING)
    assert (last.code, last.recorded) == ("lease_not_found", [])
    world.now_us += DAY_US
    assert world.post(ALICE, MISSING).types == ["command.refused"]
    assert list(world.state.identity.refused_bytes) == [day + 1], "yesterday's count is dropped"


def test_a_refusal_holds_the_signed_text_as_proof():
    world = registered(ALICE)
    (recorded,) = world.post(ALICE, MISSING).recorded
    assert isinstance(recorded.event, CommandRefused)
    command = recorded.envelope.command
    assert command is not None
    assert ALICE.hotkey in (command.text or "")
    assert json.loads(command.body or "") == {}


def test_internal_commands_use_no_nonce():
    world = World()
    assert not world.state.identity.nonces
    assert not world.state.identity.keys
