"""From an ended attempt to a score, and from scores to mass: the rules as examples."""

import pytest
from msgspec.structs import replace

from events.types.jobs import JobEnded
from events.types.policy import PolicyAdopted
from events.types.scores import ScoreRevised
from hypercluster.domain.kernel import Accepted, Refused
from hypercluster.domain.scores import claims
from hypercluster.domain.scores.factors import forbids, relation
from hypercluster.domain.scores.mass import credits_of
from projections.folds.policy import MetagraphRecord
from tests.support.jobs_world import ADA, BOB, T0, outcome
from tests.support.scores_world import COLD, POLICY, ScoresWorld

S = 1_000_000
KNOWN = MetagraphRecord("d", 1, 1, 0, 1, COLD | {"twin": "cold-ada"})
FREE = replace(POLICY, credit_requires_known_owner=0)


def test_half_the_expected_bandwidth_on_two_nodes_of_two_ranks():
    world = ScoresWorld()
    job_id = world.measured(bytes_per_s=500_000)
    score = world.score(job_id)
    factors = score.correctness, score.efficiency_ppm, score.fabric_gate, score.tee_bonus_ppm, score.composite_ppm
    assert factors == (1, 500_000, 1, 1_000_000, 500_000)
    assert [(node.gpus_used, node.class_value_ppm, node.value) for node in score.nodes] == [(2, 500_000, 500_000)] * 2
    assert (score.codes, score.submitter, {node.provider for node in score.nodes}) == ((), ADA, {BOB})
    assert {node.relation for node in score.nodes} == {"separate"}
    assert (score.expected_bytes_per_s, score.hardware_class, score.fabric) == (1_000_000, "unverified", "eth")
    assert world.job(job_id).status == "succeeded"


def test_the_score_names_its_inputs_by_number():
    world = ScoresWorld()
    job_id = world.measured()
    world.post(job_id, ADA, attempt_no=1, status="succeeded")
    attempt, claim = world.attempt(job_id), world.state.jobs.claims[f"{job_id}/1/{ADA}"]
    collecting = world.state.scores.main_ends[job_id].pos
    assert world.score(job_id).inputs == (
        attempt.placed_pos,
        attempt.started_pos,
        collecting,
        attempt.ended_pos,
        claim.pos,
    )
    assert attempt.started_pos < collecting < attempt.ended_pos < claim.pos


def test_collecting_outputs_is_not_work():
    world = ScoresWorld()
    score = world.scored(seconds=60)
    assert score.ended_us - score.started_us == 60 * S


def test_more_than_expected_counts_as_expected():
    assert ScoresWorld().scored(bytes_per_s=10**12).efficiency_ppm == 1_000_000


def test_without_a_row_of_the_policy_efficiency_is_nothing():
    score = ScoresWorld(policy=replace(POLICY, expected_bandwidth=())).scored()
    assert (score.efficiency_ppm, score.composite_ppm, score.codes) == (0, 0, ("no_expected_value",))


@pytest.mark.parametrize(("floor_ppm", "composite_ppm"), [(500_000, 500_000), (500_001, 0)])
def test_below_the_floor_efficiency_stays_visible_and_counts_for_nothing(floor_ppm, composite_ppm):
    score = ScoresWorld(policy=replace(POLICY, efficiency_floor_ppm=floor_ppm)).scored()
    assert (score.efficiency_ppm, score.composite_ppm) == (500_000, composite_ppm)
    assert score.codes == (() if composite_ppm else ("below_efficiency_floor",))


@pytest.mark.parametrize(
    ("mode", "transport", "job_nodes", "forbidden"),
    [
        ("auto", "eth", 2, False),
        ("eth", "eth", 2, False),
        ("eth", "ib", 2, False),
        ("ib", "ib", 2, False),
        ("ib", "eth", 2, True),
        ("ib", "socket", 1, True),
        ("nvlink_only", "eth", 2, True),
        ("nvlink_only", "eth", 1, False),
    ],
)
def test_which_mode_forbids_which_transport(mode, transport, job_nodes, forbidden):
    world = ScoresWorld()
    attempt = world.attempt(world.placed())
    assert forbids(mode, replace(attempt, transport=transport, nodes=attempt.nodes[:job_nodes])) is forbidden


def test_a_forbidden_transport_closes_the_gate():
    score = ScoresWorld().scored(fabric="nvlink_only")
    assert (score.correctness, score.fabric_gate, score.composite_ppm) == (1, 0, 0)
    assert score.codes == ("transport_forbidden",)


@pytest.mark.parametrize(
    ("failure_code", "status", "codes"),
    [
        ("rank_failed", "failed", ()),
        ("timeout", "timeout", ()),
        ("output_over_quota", "failed", ()),
        ("inventory_spoof", "failed", ("inventory_spoof",)),
        ("preflight_mismatch", "failed", ("preflight_mismatch",)),
    ],
)
def test_failures_that_are_scored(failure_code, status, codes):
    world = ScoresWorld()
    job_id = world.placed()
    facts = {"program": "ring-xor-1", "transport": "eth", "measured_bytes_per_s": 10**6, "transcript": "blob"}
    world.work("attempt.run", job_id, **facts)
    world.wait(700)
    world.over(job_id, failure_code)
    score = world.score(job_id)
    assert (score.correctness, score.composite_ppm, score.codes) == (0, 0, codes)
    assert score.efficiency_ppm == 1_000_000
    assert all(node.value == 0 for node in score.nodes)
    assert world.job(job_id).status == status


def test_an_attempt_that_failed_before_its_start_names_no_missing_value():
    world = ScoresWorld()
    job_id = world.placed()
    world.work("attempt.end", job_id, phase="preflight", failure_code="rank_missing", rank=1)
    score = world.score(job_id)
    assert (score.codes, score.program, score.started_us) == (("rank_missing",), "", T0)


@pytest.mark.parametrize("failure_code", ["node_lost", "host_key_mismatch", "gang_timeout", "cancelled"])
def test_failures_that_are_not_scored(failure_code):
    world = ScoresWorld()
    job_id = world.running()
    world.over(job_id, failure_code)
    assert outcome(world.ask_score(job_id)) == "attempt_not_scorable"


def test_a_live_attempt_is_not_scored():
    world = ScoresWorld()
    assert outcome(world.ask_score(world.running())) == "attempt_not_scorable"
    assert outcome(world.ask_score("nothing")) == "attempt_not_found"


def test_scoring_twice_scores_once():
    world = ScoresWorld()
    score = world.scored()
    again = world.ask_score(score.job_id)
    pos = world.state.scores.attempts[f"{score.job_id}/1"].pos
    assert again == Accepted((), subject=f"{score.job_id}/1", seq=pos)


def test_the_policy_of_the_attempts_start_decides():
    world = ScoresWorld()
    job_id = world.measured()
    world.adopt(replace(POLICY, unverified_value_ppm=1, expected_bandwidth=()))
    score = world.score(job_id)
    assert (score.composite_ppm, score.nodes[0].class_value_ppm) == (500_000, 500_000)


def test_the_jobs_end_names_the_attempts_end():
    world = ScoresWorld()
    job_id = world.measured()
    decision = world.ask_score(job_id)
    assert isinstance(decision, Accepted)
    ended = JobEnded(
        job_id=job_id, status="succeeded", reason_code="succeeded", caused_by=world.attempt(job_id).ended_pos
    )
    assert decision.events[1:] == (ended,)


def test_a_job_that_ended_meanwhile_is_scored_and_not_ended_again():
    world = ScoresWorld()
    job_id = world.measured()
    world.fold(JobEnded(job_id=job_id, status="failed", reason_code="lease_ended"))
    assert outcome(world.ask_score(job_id)) == ["score.recorded"]


def test_teardown_ends_the_lease_with_the_score():
    world = ScoresWorld()
    job_id = world.measured(teardown="terminate")
    assert outcome(world.ask_score(job_id))[:2] == ["score.recorded", "job.ended"]
    world.score(job_id)
    assert world.state.market.leases["lease-1"].status == "terminated"


@pytest.mark.parametrize(
    ("submitter", "provider", "metagraph", "policy", "expected"),
    [
        pytest.param("ada", "bob", KNOWN, POLICY, "separate", id="two owners"),
        pytest.param("ada", "twin", KNOWN, POLICY, "self_deal", id="two hotkeys of one owner"),
        pytest.param("ada", "ada", KNOWN, POLICY, "self_deal", id="one hotkey"),
        pytest.param("ada", "who", KNOWN, POLICY, "owner_unknown", id="unknown provider"),
        pytest.param("who", "bob", KNOWN, POLICY, "owner_unknown", id="unknown submitter"),
        pytest.param("who", "who", KNOWN, POLICY, "owner_unknown", id="one unknown hotkey while owners are required"),
        pytest.param("ada", "bob", None, POLICY, "owner_unknown", id="no list yet"),
        pytest.param("who", "who", None, FREE, "self_deal", id="one hotkey where owners are not required"),
        pytest.param("ada", "twin", KNOWN, FREE, "self_deal", id="one owner where owners are not required"),
        pytest.param("ada", "bob", None, FREE, "owner_unknown", id="unknown owners say so"),
    ],
)
def test_relations(submitter, provider, metagraph, policy, expected):
    assert relation(submitter, provider, metagraph, policy) == expected


def test_owners_are_those_of_the_list_in_force_at_the_start():
    world = ScoresWorld()
    job_id = world.measured()
    world.metagraph({"ada": "one", "bob": "one"})
    assert {node.relation for node in world.score(job_id).nodes} == {"separate"}
    assert {node.relation for node in world.scored().nodes} == {"self_deal"}


def test_mass_is_split_by_the_shares_and_pays_each_slot():
    world = ScoresWorld()
    score = world.scored(seconds=899)
    slots = score.ended_us // (900 * S) - score.started_us // (900 * S) + 1
    credit = 2 * 500_000 * slots
    mass = world.masses()
    assert {hotkey: (m.supply, m.demand, m.total) for hotkey, m in mass.items()} == {
        ADA: (0, credit * 3 // 10, credit * 3 // 10),
        BOB: (credit * 7 // 10, 0, credit * 7 // 10),
    }


def test_a_slot_pays_once_per_node():
    world = ScoresWorld(policy=replace(POLICY, credit_slot_s=86_400))
    first, second = world.scored(), world.scored(bytes_per_s=1_000_000)
    assert [c.slots for c in credits_of(world.state, f"{first.job_id}/1")] == [1, 1]
    used = credits_of(world.state, f"{second.job_id}/1")
    assert [(c.slots, c.supply, c.codes) for c in used] == [(0, 0, ("credit_slot_used",))] * 2


def test_an_attempt_without_value_leaves_its_slots():
    world = ScoresWorld(policy=replace(POLICY, credit_slot_s=86_400))
    world.scored(bytes_per_s=0)
    second = world.scored()
    assert [c.slots for c in credits_of(world.state, f"{second.job_id}/1")] == [1, 1]


def test_credit_ages_out_of_the_window_to_the_microsecond():
    world = ScoresWorld()
    score = world.scored()
    world.at_us = score.started_us + 259_200 * S
    assert set(world.masses()) == {ADA, BOB}
    world.at_us += 1
    assert world.masses() == {}


def test_a_full_self_deal_and_unknown_owners_earn_nothing():
    assert masses_with(owners={"ada": "one", "bob": "one"}) == {}
    assert masses_with(owners={"bob": "one"}) == {}
    half = replace(POLICY, self_deal_damping_ppm=500_000)
    whole = masses_with(owners=COLD)
    assert masses_with(half, owners={"ada": "one", "bob": "one"}) == {h: total // 2 for h, total in whole.items()}


def masses_with(policy=POLICY, owners=None):
    world = ScoresWorld(policy=policy, owners=owners)
    world.scored()
    return {hotkey: mass.total for hotkey, mass in world.masses(policy).items()}


def test_in_sim_unknown_owners_earn():
    world = ScoresWorld("sim", FREE)
    assert {node.relation for node in world.scored().nodes} == {"owner_unknown"}
    assert set(world.masses(FREE)) == {ADA, BOB}
    assert world.masses(POLICY) == {}


def test_the_submitters_failures_cost_its_demand_alone():
    world = ScoresWorld()
    world.scored()
    before = world.masses()
    for _ in range(3):
        job_id = world.running()
        world.over(job_id, "rank_failed")
        world.work("attempt.clean", job_id)
        world.score(job_id)
    after = world.masses()
    assert after[BOB] == before[BOB]
    failed_ppm = 3 * 1_000_000 // 4
    keep = 1_000_000 - (failed_ppm - 200_000) * 1_000_000 // 800_000
    assert after[ADA].keep_ppm == keep
    assert after[ADA].demand == before[ADA].demand * keep // 1_000_000


def test_a_nodes_failure_is_not_the_submitters():
    world = ScoresWorld()
    world.scored()
    before = world.masses()
    job_id = world.running()
    world.over(job_id, "node_lost")
    assert world.masses() == before


@pytest.mark.parametrize(
    ("actor", "result", "sides"),
    [
        pytest.param(ADA, {"verified": False}, (True, ()), id="the submitter voids demand"),
        pytest.param(BOB, {"verified": False}, (False, (BOB,)), id="a provider voids its supply"),
        pytest.param(BOB, {"integrity_codes": ["fabric_lie"]}, (False, (BOB,)), id="a known integrity code"),
        pytest.param(BOB, {"integrity_codes": ["nonsense"]}, (False, ()), id="an unknown code does nothing"),
        pytest.param(ADA, {"status": "failed", "failure_code": "rank_failed"}, (False, ()), id="nor does a status"),
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["before the score", "after it"])
def test_a_claim_lowers_its_posters_side_alone(actor, result, sides, before):
    world = ScoresWorld()
    job_id = world.measured()
    clean = ScoresWorld()
    clean.scored()
    claim = {"attempt_no": 1, "status": "succeeded"} | result
    if before:
        world.post(job_id, actor, **claim)
        world.score(job_id)
    else:
        world.score(job_id)
        world.post(job_id, actor, **claim)
    scored = world.state.scores.attempts[f"{job_id}/1"]
    assert (scored.score.demand_void, scored.score.supply_void) == sides
    assert scored.score.composite_ppm == 500_000
    assert scored.revision == (1 if before or sides == (False, ()) else 2)
    expected = {ADA: clean.masses()[ADA].total, BOB: clean.masses()[BOB].total}
    lost = ({ADA} if sides[0] else set()) | set(sides[1])
    assert {h: m.total for h, m in world.masses().items()} == {h: t for h, t in expected.items() if h not in lost}


def test_one_partys_claim_does_not_restore_the_other_side():
    world = ScoresWorld()
    job_id = world.scored().job_id
    for actor in (ADA, BOB):
        world.post(job_id, actor, attempt_no=1, status="succeeded", verified=False)
    scored = world.state.scores.attempts[f"{job_id}/1"]
    assert (scored.revision, scored.score.demand_void, scored.score.supply_void) == (3, True, (BOB,))
    assert world.masses() == {}


def test_a_claim_in_the_ledger_is_named_by_the_revision_and_revises_once():
    world = ScoresWorld()
    score = world.scored()
    key = f"{score.job_id}/1"
    world.post(score.job_id, BOB, attempt_no=1, status="failed")
    claim = replace(world.state.jobs.claims[f"{key}/{BOB}"], verified=False)
    (revised,) = claims.revise(world.state, key, claim, world.at_us)
    assert isinstance(revised, ScoreRevised)
    assert (revised.revision, revised.reason_code, revised.score.inputs) == (2, "claim", (*score.inputs, claim.pos))
    world.fold(revised)
    assert claims.revise(world.state, key, claim, world.at_us) == ()
    assert claims.revise(world.state, "nothing/1", claim, world.at_us) == ()


def test_revisions_fold_in_order_and_keep_who_where_and_when():
    world = ScoresWorld()
    score = world.scored()
    for revision, changed in [(3, score), (1, score), (2, replace(score, started_us=score.started_us - 1))]:
        with pytest.raises(ValueError, match="does not follow"):
            world.fold(ScoreRevised(revision=revision, reason_code="proof", score=changed))


def test_another_policys_terms_hold_with_its_snapshot_and_for_whoever_asks():
    world = ScoresWorld()
    world.scored()
    half = replace(POLICY, supply_share_ppm=350_000)
    asked = world.masses(half)
    assert asked[BOB].supply * 2 == world.masses()[BOB].supply
    world.adopt(half)
    assert world.state.scores.standings[BOB].supply == world.masses()[BOB].supply
    world.wait(360)
    assert world.snapshot() is not None
    assert world.state.scores.standings[BOB].supply == asked[BOB].supply
    assert world.masses(half) == asked


def test_a_policy_that_only_waits_changes_nothing():
    world = ScoresWorld()
    world.scored()
    before = world.masses()
    later = replace(POLICY, supply_share_ppm=0)
    world.fold(PolicyAdopted(digest="later", effective_us=world.at_us + 10**12, policy=later))
    assert world.snapshot() is not None
    assert world.masses() == before


def test_a_refusal_is_a_value():
    assert isinstance(ScoresWorld().ask_score("x"), Refused)
