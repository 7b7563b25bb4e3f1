"""When a snapshot is taken, what it says, and what the leaderboard shows."""

import hashlib
import json

import msgspec
from msgspec.structs import replace

from events.types.weights import Weight
from hypercluster.domain.kernel import Accepted
from hypercluster.domain.weights.decide import snapshot_due
from hypercluster.domain.weights.preview import leaderboard_rows, preview
from projections.folds.scores import Standing
from projections.tables.mirrors import MIRRORS
from tests.support.jobs_world import ADA, BOB, EVE, outcome
from tests.support.scores_world import POLICY, ScoresWorld

S = 1_000_000
ZEROS = "0" * 64
SPLIT = (Weight(hotkey=BOB, ppm=700_000), Weight(hotkey=ADA, ppm=300_000))


def test_the_first_snapshot_is_due_at_once_and_may_be_empty():
    world = ScoresWorld()
    taken = world.snapshot()
    assert taken is not None
    assert (taken.number, taken.previous, taken.weights) == (1, ZEROS, ())
    assert (taken.size, taken.root) == (world.state.pos - 1, "ab" * 32)
    assert taken.epoch == world.at_us // (360 * S)


def test_a_score_gives_seventy_thirty():
    world = ScoresWorld()
    world.scored()
    taken = world.snapshot()
    assert taken is not None
    assert taken.weights == SPLIT


def test_snapshots_are_chained_by_their_digests():
    world = ScoresWorld()
    first = world.snapshot()
    world.scored()
    second = world.snapshot()
    assert first is not None
    assert second is not None
    assert (second.number, second.previous) == (2, first.digest)
    fields = json.loads(msgspec.json.encode(second))
    digest = fields.pop("digest")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest == hashlib.sha256(text.encode()).hexdigest()


def test_within_an_epoch_only_a_change_makes_a_snapshot_and_not_too_often():
    world = ScoresWorld(policy=replace(POLICY, epoch_s=86_400))
    world.snapshot()
    world.wait(61)
    assert outcome(world.ask_snapshot()) == []
    world.scored()
    assert world.snapshot() is not None
    world.metagraph({"ada": "a"})
    world.wait(59)
    assert not snapshot_due(world.state, world.at_us)
    assert outcome(world.ask_snapshot()) == []
    world.wait(1)
    assert snapshot_due(world.state, world.at_us)
    taken = world.snapshot()
    assert taken is not None
    assert taken.weights == (Weight(hotkey=ADA, ppm=1_000_000),)


def test_what_is_not_due_names_the_newest_snapshot():
    world = ScoresWorld()
    world.snapshot()
    assert world.ask_snapshot() == Accepted((), subject="1", seq=world.state.pos)


def test_each_epoch_has_its_snapshot_and_missed_edges_make_one():
    world = ScoresWorld()
    first = world.snapshot()
    world.wait(360)
    second = world.snapshot()
    world.wait(3600)
    third = world.snapshot()
    assert world.snapshot() is None
    assert first is not None
    assert second is not None
    assert third is not None
    assert (second.epoch - first.epoch, third.epoch - second.epoch) == (1, 10)
    assert second.weights == first.weights == ()


def test_ageing_alone_changes_the_weights_of_the_next_epoch():
    world = ScoresWorld()
    world.scored()
    world.snapshot()
    world.wait(259_200)
    taken = world.snapshot()
    assert taken is not None
    assert taken.weights == ()


def test_a_snapshot_is_folded_from_committed_events_only():
    world = ScoresWorld()
    assert outcome(world.ask_snapshot(size=world.state.pos - 1)) == "snapshot_not_alone"


def test_production_pays_nobody_outside_the_list_in_force():
    world = ScoresWorld()
    world.scored()
    world.metagraph({"ada": "a", "eve": "e"})
    taken = world.snapshot()
    assert taken is not None
    assert taken.weights == (Weight(hotkey=ADA, ppm=1_000_000),)
    assert taken.metagraph_digest == world.state.policy.metagraphs[1].digest


def test_production_without_a_list_pays_nobody_and_sim_pays_everybody():
    free = replace(POLICY, credit_requires_known_owner=0)
    for profile, weights in [("sim", SPLIT), ("production", ())]:
        world = ScoresWorld("sim", free)
        info = world.state.ledger.info["ledger"]
        world.state.ledger.info["ledger"] = replace(info, profile=profile)
        world.scored()
        taken = world.snapshot()
        assert taken is not None
        assert (taken.weights, taken.metagraph_digest) == (weights, ZEROS)


def test_the_leaderboard_is_in_the_order_of_mass_with_counts():
    world = ScoresWorld()
    world.scored()
    world.scored(bytes_per_s=0)
    rows = leaderboard_rows(world.state.scores.standings.values())
    mass = world.masses()
    assert [(row.rank, row.hotkey, row.mass, row.score_count, row.self_deal_count) for row in rows] == [
        (1, BOB, mass[BOB].total, 2, 0),
        (2, ADA, mass[ADA].total, 2, 0),
    ]
    assert [row.roles for row in rows] == [{"supply": mass[BOB].supply}, {"demand": mass[ADA].demand}]


def test_hotkeys_without_mass_stand_last_by_their_bytes():
    rows = leaderboard_rows(Standing(h, 0, 0, 10**6, 0, 1, 0, 5) for h in (EVE, ADA, BOB))
    assert [row.hotkey for row in rows] == [ADA, BOB, EVE]


def test_a_snapshot_brings_every_standing_up_to_date():
    world = ScoresWorld()
    world.scored()
    changed_us = world.state.scores.standings[BOB].changed_us
    world.snapshot()
    assert world.state.scores.standings[BOB].changed_us == changed_us
    world.wait(259_200)
    assert world.state.scores.standings[BOB].total > 0
    world.snapshot()
    assert (world.state.scores.standings[BOB].total, world.state.scores.standings[BOB].changed_us) == (0, world.at_us)


def test_the_preview_is_the_newest_snapshot_beside_the_masses_now():
    world = ScoresWorld()
    nothing = preview(None, ())
    assert (nothing.weights, nothing.masses, nothing.number, nothing.taken_us) == ({}, {}, None, None)
    world.scored()
    taken = world.snapshot()
    assert taken is not None
    shown = preview(world.state.weights.newest["newest"], world.state.scores.standings.values())
    assert shown.weights == {BOB: 700_000, ADA: 300_000}
    assert shown.masses == {hotkey: mass.total for hotkey, mass in world.masses().items()}
    assert (shown.number, shown.epoch, shown.digest, shown.taken_us) == (1, taken.epoch, taken.digest, world.at_us)


def test_the_mirror_knows_every_mirrored_table_of_this_area():
    scores = ScoresWorld().state.scores
    mirrored = {table.name for table in vars(scores).values() if getattr(table, "mirrored", False)}
    assert mirrored == {"score", "standing"} <= MIRRORS.keys()
