"""A miner cannot pay itself: not by posting results, not by renting from itself, not by many or worthless jobs.

Commands go through the real writer and deciders into a real ledger; what workers would report is reported by the test.
"""

import sys
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from hypercluster.domain.kernel import Refused
from hypercluster.domain.policy.release import policy_of

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from ledgers import Ended, Town, accepted, person

ADA, BOB, EVE, MALLORY = (person(name, "ed25519") for name in ("ada", "bob", "eve", "mallory"))

CLAIMS = [
    {"status": "succeeded", "metrics": {"efficiency": 10**9}, "verified": True},
    {"status": "done", "metrics": {"efficiency": Decimal("1e6"), "fabric_gate": 1, "composite": 10**9}},
    {"status": "failed", "integrity_codes": ["fabric_lie"], "verified": False},
    {"status": "timeout", "failure_code": "timeout", "proof_tier": "tdx+gpu_cc", "verify_mode": "live"},
]


@pytest.fixture
def town(tmp_path):
    found = Town(tmp_path / "data")
    yield found
    found.close()


def weights(town: Town) -> dict[str, int]:
    town.pass_time(6)
    town.snapshot()
    return {weight.hotkey: weight.ppm for weight in town.state.weights.newest["newest"].snapshot.weights}


def require_owners(town: Town, owners: dict[str, str]) -> None:
    """Adopt a list of hotkey -> coldkey and a policy that gives credit to known owners only."""
    entries = [{"uid": uid, "hotkey": hot, "coldkey": cold} for uid, (hot, cold) in enumerate(owners.items())]
    accepted(town.ask(town.operator, "POST", "/v1/operator/metagraph", {"netuid": 1, "block": 1, "entries": entries}))
    adopt(town, credit_requires_known_owner=1)


def adopt(town: Town, **changes: int) -> None:
    """Have the next policy with these numbers in force."""
    policy = msgspec.structs.replace(policy_of("sim"), version=2, **changes)
    accepted(town.ask(town.operator, "POST", "/v1/operator/policy", {"policy": msgspec.to_builtins(policy)}))
    town.pass_time(10)


def run_one(town: Town, lease: str, renter=ADA, nnodes: int = 1, ended: Ended | None = None) -> str:
    job = town.submit_job(renter, lease, nnodes)
    town.run(town.place(job), ended)
    return job


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["status"])
@pytest.mark.parametrize("poster", [ADA, BOB], ids=["submitter", "provider"])
@pytest.mark.parametrize("when", ["during", "after"])
def test_a_posted_result_raises_nothing_and_ends_nothing(tmp_path, claim, poster, when):
    plain, posted = Town(tmp_path / "plain"), Town(tmp_path / "posted")
    found = []
    for town in (plain, posted):
        lease = town.rent(BOB, ADA, town.add_nodes(BOB, 1))
        job = town.submit_job(ADA, lease, 1)
        path = f"/v1/jobs/{job}/results"
        if town is posted:
            assert town.ask(poster, "POST", path, claim).decision.code == "attempt_not_found"
        attempt = town.place(job)
        if town is posted and when == "during":
            accepted(town.ask(poster, "POST", path, claim))
            assert town.state.jobs.jobs[job].status == "provisioning"
        town.run(attempt)
        if town is posted and when == "after":
            accepted(town.ask(poster, "POST", path, claim))
        assert town.state.jobs.jobs[job].status == "succeeded"
        score = town.state.scores.attempts[f"{job}/1"].score
        standings = {hotkey: standing.total for hotkey, standing in town.state.scores.standings.items()}
        found.append((score, standings))
        town.close()
    (score, masses), (claimed, after) = found
    assert (claimed.efficiency_ppm, claimed.fabric_gate) == (score.efficiency_ppm, score.fabric_gate)
    assert claimed.composite_ppm <= score.composite_ppm
    other = BOB if poster is ADA else ADA
    assert after[other.hotkey] == masses[other.hotkey]
    assert after[poster.hotkey] <= masses[poster.hotkey]


def test_attempts_are_never_minted(town):
    lease = town.rent(BOB, ADA, town.add_nodes(BOB, 1))
    job = run_one(town, lease)
    answer = town.ask(ADA, "POST", f"/v1/jobs/{job}/results", {"attempt_no": 2, "status": "succeeded"})
    assert isinstance(answer.decision, Refused) and answer.decision.code == "attempt_not_found"
    assert list(town.state.scores.attempts) == [f"{job}/1"]


def test_production_takes_no_job_without_a_lease(tmp_path):
    town = Town(tmp_path / "data", "production")
    body = {
        "image_digest": "r.example/i@sha256:" + "ab" * 32,
        "entrypoint": ["true"],
        "world_size": 1,
        "nnodes": 1,
        "nproc_per_node": 1,
        "timeout_s": 60,
        "resource": {},
    }
    answer = town.ask(ADA, "POST", "/v1/jobs", body)
    assert answer.decision.code == "lease_required"
    assert not town.state.jobs.jobs
    town.close()


def test_own_node_rented_by_own_key_earns_nothing(town):
    lease = town.rent(BOB, BOB, town.add_nodes(BOB, 1))
    job = run_one(town, lease, BOB)
    assert town.state.scores.attempts[f"{job}/1"].score.composite_ppm > 0
    assert weights(town) == {}


def test_own_node_rented_by_another_key_of_the_owner_earns_nothing(town):
    require_owners(town, {BOB.hotkey: BOB.hotkey, ADA.hotkey: BOB.hotkey, EVE.hotkey: EVE.hotkey})
    nodes = town.add_nodes(BOB, 2)
    run_one(town, town.rent(BOB, ADA, nodes[:1]))
    assert weights(town) == {}
    run_one(town, town.rent(BOB, EVE, nodes[1:]), EVE)
    assert set(weights(town)) == {BOB.hotkey, EVE.hotkey}


def test_a_throwaway_key_earns_nothing_for_its_own_provider(town):
    require_owners(town, {BOB.hotkey: BOB.hotkey, EVE.hotkey: EVE.hotkey})
    run_one(town, town.rent(BOB, MALLORY, town.add_nodes(BOB, 1)), MALLORY)
    assert weights(town) == {}


def test_fifty_small_jobs_push_nobody_out(town):
    bobs, eves = town.add_nodes(BOB, 1, "bob"), town.add_nodes(EVE, 1, "eve")
    run_one(town, town.rent(BOB, ADA, bobs))
    before = weights(town)
    flood = town.rent(EVE, MALLORY, eves)
    for _ in range(policy_of("sim").window_attempts):
        run_one(town, flood, MALLORY)
    after = weights(town)
    assert set(before) == {ADA.hotkey, BOB.hotkey}
    assert set(after) == {ADA.hotkey, BOB.hotkey, EVE.hotkey, MALLORY.hotkey}
    assert town.state.scores.standings[BOB.hotkey].total > 0


def test_fifty_small_jobs_on_the_same_node_take_nothing_from_who_rented_it_before(town):
    nodes = town.add_nodes(BOB, 1)
    lease = town.rent(BOB, ADA, nodes)
    run_one(town, lease)
    earned = town.state.scores.standings[ADA.hotkey].total
    accepted(town.ask(ADA, "POST", f"/v1/leases/{lease}/terminate", {"reason": "done"}))
    flood = town.rent(BOB, MALLORY, nodes)
    for _ in range(policy_of("sim").window_attempts):
        run_one(town, flood, MALLORY)
    assert town.state.scores.standings[ADA.hotkey].total == earned > 0
    assert set(weights(town)) == {ADA.hotkey, BOB.hotkey, MALLORY.hotkey}


def test_fifty_worthless_jobs_do_not_empty_a_providers_window(town):
    lease = town.rent(BOB, ADA, town.add_nodes(BOB, 1))
    run_one(town, lease)
    before = town.state.scores.standings[BOB.hotkey].supply
    for _ in range(policy_of("sim").window_attempts):
        run_one(town, lease, ended=Ended("rank_failed"))
    assert town.state.scores.standings[BOB.hotkey].supply == before > 0
    assert town.state.scores.standings[ADA.hotkey].total == 0, "only failures: nothing of the demand is kept"
    assert set(weights(town)) == {BOB.hotkey}


def test_repeating_short_work_in_one_slot_pays_once(town):
    adopt(town, credit_slot_s=300)
    nodes = town.add_nodes(BOB, 1)
    lease = town.rent(BOB, ADA, nodes)
    paid = []
    for renter in (ADA, ADA, MALLORY):
        if renter is MALLORY:
            accepted(town.ask(ADA, "POST", f"/v1/leases/{lease}/terminate", {"reason": "done"}))
            lease = town.rent(BOB, MALLORY, nodes)
        job = town.submit_job(renter, lease, 1)
        town.run(town.place(job), seconds=0)
        town.pass_time(6)
        town.snapshot()
        paid.append(town.state.scores.standings[BOB.hotkey].supply)
    scored = [attempt.score for attempt in town.state.scores.attempts.values()]
    assert len({at // 300_000_000 for score in scored for at in (score.started_us, score.ended_us)}) == 1
    first = scored[0].nodes[0].value * policy_of("sim").supply_share_ppm // 1_000_000
    assert paid == [first] * 3 and first > 0
    assert MALLORY.hotkey not in weights(town)
    town.run(town.place(town.submit_job(MALLORY, lease, 1)), seconds=300)  # into the next slot, which is free
    assert set(weights(town)) == {ADA.hotkey, BOB.hotkey, MALLORY.hotkey}
    assert town.state.scores.standings[BOB.hotkey].supply == 2 * first
