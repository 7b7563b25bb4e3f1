"""Where gangs run, why they wait, and when they give up."""

import pytest
from msgspec.structs import replace

from events.types.jobs import NodeRanks
from events.types.nodes import NodeFacts
from hypercluster.domain.jobs.placement import NodeRoom, Plan, Rejected, Request, plan
from hypercluster.domain.kernel import US_PER_S
from hypercluster.domain.policy.release import POLICY_V1
from tests.support.jobs_world import EVE, World, outcome

H100 = NodeFacts(gpu_model="H100", gpu_count=4)
ONE = {"world_size": 1, "nnodes": 1, "nproc_per_node": 1}


def room(node_id: str, free: tuple[int, ...], count: int = 8, has_ib: bool = False, rate: int = 0) -> NodeRoom:
    return NodeRoom(node_id, count, free, has_ib, rate)


ROOMS = (
    room("a", (0, 1, 2, 3, 4, 5, 6, 7), has_ib=True, rate=50),
    room("b", (5, 3, 1)),
    room("c", (0, 1, 2), has_ib=True, rate=100),
    room("d", (4, 5, 6, 7), has_ib=True, rate=25),
    room("e", (0,), count=1),
)


@pytest.mark.parametrize(
    ("request_", "nodes"),
    [
        pytest.param(Request(1, 1), [("e", (0,))], id="pack takes the tightest node"),
        pytest.param(Request(2, 2), [("b", (1, 3)), ("c", (0, 1))], id="ties by id, lowest GPUs first"),
        pytest.param(Request(2, 3), [("b", (1, 3, 5)), ("c", (0, 1, 2))], id="exact fits"),
        pytest.param(Request(1, 4), [("d", (4, 5, 6, 7))], id="too small ones are passed over"),
        pytest.param(Request(2, 2, "spread"), [("a", (0, 1)), ("d", (4, 5))], id="spread takes the emptiest"),
        pytest.param(Request(3, 2, "pack", "ib"), [("c", (0, 1)), ("d", (4, 5)), ("a", (0, 1))], id="ib nodes only"),
    ],
)
def test_plans(request_: Request, nodes: list[tuple[str, tuple[int, ...]]]) -> None:
    expected = Plan(tuple(NodeRanks(node_id=node_id, gpus=gpus) for node_id, gpus in nodes))
    found = plan(ROOMS, request_)
    assert found == expected and expected.master_node == nodes[0][0]
    assert plan(tuple(reversed(ROOMS)), request_) == expected


def test_equal_fits_with_infiniband_take_the_faster() -> None:
    rooms = [room("a", (0,), has_ib=True, rate=10), room("b", (0,), has_ib=True, rate=20)]
    found = plan(rooms, Request(1, 1, "pack", "ib"))
    assert isinstance(found, Plan) and found.master_node == "b"
    found = plan(rooms, Request(1, 1, "pack", "eth"))
    assert isinstance(found, Plan) and found.master_node == "a"


def test_ids_are_ordered_by_bytes() -> None:
    found = plan([room("ä", (0,)), room("z", (0,)), room("Z", (0,))], Request(3, 1))
    assert isinstance(found, Plan) and [one.node_id for one in found.nodes] == ["Z", "z", "ä"]


def test_a_rejection_names_the_first_reason_of_each_node() -> None:
    rooms = [room("a", (0,), count=1), room("b", (), count=4), room("c", (0, 1), count=2, has_ib=True)]
    assert plan(rooms, Request(2, 2)) == Rejected(1, {"a": "too_few_gpus", "b": "gpus_busy"})
    assert plan(rooms, Request(2, 2, "pack", "ib")) == Rejected(1, {"a": "too_few_gpus", "b": "missing_ib"})
    assert plan([], Request(1, 1)) == Rejected(0, {})


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        ({"a": "too_few_gpus", "b": "gpus_busy", "c": "missing_ib"}, "gpus_busy"),
        ({"a": "too_few_gpus", "c": "missing_ib"}, "missing_ib"),
        ({}, "too_few_gpus"),
    ],
)
def test_the_reason_of_a_rejection(reasons: dict[str, str], code: str) -> None:
    assert Rejected(0, reasons).reason_code == code


def waiting(world: World, job_id: str) -> tuple[str | None, int, int]:
    job = world.job(job_id)
    assert job.status == "placing"
    return job.waiting_code, job.waiting_have, job.waiting_need


def test_a_place_is_taken_once() -> None:
    world = World()
    job_id = world.placed()
    attempt = world.attempt(job_id)
    assert attempt.nodes == (NodeRanks(node_id="node-0", gpus=(0, 1)), NodeRanks(node_id="node-1", gpus=(0, 1)))
    assert (attempt.master_node, attempt.lease_id, attempt.attempt_no) == ("node-0", "lease-1", 1)
    assert attempt.policy_digest == world.state.policy.policy_at(world.at_us).digest
    assert outcome(world.work("job.place", job_id)) == []


def test_attempts_never_share_a_gpu() -> None:
    world = World()
    first, second = world.placed(), world.placed()
    assert {gpu for ranks in world.attempt(first).nodes for gpu in ranks.gpus} == {0, 1}
    assert {gpu for ranks in world.attempt(second).nodes for gpu in ranks.gpus} == {2, 3}
    third = world.submitted()
    assert outcome(world.work("job.place", third)) == ["job.waiting"]
    assert waiting(world, third) == ("gpus_busy", 0, 2)
    assert outcome(world.work("job.place", third)) == []
    world.cancel(first)
    assert outcome(world.work("job.place", third)) == []
    world.work("attempt.clean", first)
    assert outcome(world.work("job.place", third)) == ["attempt.placed"]
    assert world.job(third).waiting_code is None


def test_a_reason_is_stated_again_only_when_it_changed() -> None:
    world = World()
    world.placed(world_size=1, nnodes=1, nproc_per_node=1)
    both = world.placed(world_size=6, nproc_per_node=3)
    job_id = world.submitted(world_size=8, nproc_per_node=4)
    assert outcome(world.work("job.place", job_id)) == ["job.waiting"]
    assert waiting(world, job_id) == ("gpus_busy", 0, 2)
    world.cancel(both)
    world.work("attempt.clean", both)
    assert outcome(world.work("job.place", job_id)) == ["job.waiting"]
    assert waiting(world, job_id) == ("gpus_busy", 1, 2)


def test_the_shared_world_budget_holds_and_the_oldest_goes_first() -> None:
    world = World(policy=replace(POLICY_V1, concurrent_world_size_max=6), facts=(H100,) * 4, leased=2)
    world.lease("lease-2", EVE, ("node-2", "node-3"))
    running = world.placed()
    big = world.submitted(actor=EVE, lease_id="lease-2")
    small = world.submitted(**ONE)
    assert outcome(world.work("job.place", big)) == ["job.waiting"]
    assert waiting(world, big) == ("world_budget_full", 2, 4)
    assert outcome(world.work("job.place", small)) == ["job.waiting"]
    assert waiting(world, small) == ("queue_position", 1, 0)
    assert outcome(world.work("job.place", small)) == []
    world.cancel(running)
    assert outcome(world.work("job.place", small)) == []
    assert outcome(world.work("job.place", big)) == ["attempt.placed"]
    assert outcome(world.work("job.place", small)) == ["attempt.placed"]
    assert not world.state.jobs.line


def test_a_job_whose_own_nodes_are_busy_holds_nobody_up() -> None:
    world = World(policy=replace(POLICY_V1, concurrent_world_size_max=9), facts=(H100,) * 4, leased=2)
    world.lease("lease-2", EVE, ("node-2", "node-3"))
    world.placed(world_size=8, nproc_per_node=4)
    older = world.submitted(**ONE)
    younger = world.submitted(actor=EVE, lease_id="lease-2", **ONE)
    world.work("job.place", older)
    assert waiting(world, older)[0] == "gpus_busy"
    assert outcome(world.work("job.place", younger)) == ["attempt.placed"]


def test_who_leaves_the_line_holds_nobody_up() -> None:
    world = World(policy=replace(POLICY_V1, concurrent_world_size_max=4))
    world.placed(world_size=2, nproc_per_node=1)
    big = world.submitted()
    small = world.submitted(**ONE)
    world.work("job.place", big)
    world.work("job.place", small)
    assert waiting(world, small)[0] == "queue_position"
    world.cancel(big)
    assert outcome(world.work("job.place", small)) == ["attempt.placed"]


def test_large_jobs_are_counted_until_they_are_scored() -> None:
    policy = replace(POLICY_V1, concurrent_large_jobs_max=1, large_job_world_size=2)
    world = World(policy=policy)
    first = world.running(world_size=2, nproc_per_node=1)
    second = world.submitted(world_size=2, nproc_per_node=1)
    world.work("job.place", second)
    assert waiting(world, second) == ("large_jobs_full", 0, 1)
    world.over(first)
    assert world.job(first).status == "scoring"
    assert outcome(world.work("job.place", second)) == []
    world.score(first)
    assert outcome(world.work("job.place", second)) == ["attempt.placed"]


def test_a_job_above_the_shared_budget_is_refused_at_once() -> None:
    world = World(policy=replace(POLICY_V1, concurrent_world_size_max=3))
    assert outcome(world.submit()) == "budget_exceeded"


def test_a_job_whose_lease_is_over_is_not_placed() -> None:
    world = World()
    job_id = world.submitted()
    world.wait(10 * 3600)
    assert outcome(world.work("job.place", job_id)) == ["job.ended"]
    assert outcome(world.work("job.place", job_id)) == "already_terminal"
    assert outcome(world.work("job.place", "no-such-job")) == "job_not_found"


def test_sim_places_jobs_without_lease_on_free_healthy_nodes_only() -> None:
    world = World(profile="sim", facts=(H100,) * 3, leased=2)
    job_id = world.placed(lease_id=None, **ONE)
    assert world.attempt(job_id).nodes == (NodeRanks(node_id="node-2", gpus=(0,)),)
    two = world.submitted(lease_id=None)
    assert outcome(world.work("job.place", two)) == ["job.waiting"]
    assert waiting(world, two) == ("too_few_gpus", 1, 2)


def test_a_job_gives_up_when_it_has_waited_long_enough() -> None:
    world = World()
    world.placed(world_size=8, nproc_per_node=4)
    job_id = world.submitted()
    world.work("job.place", job_id)
    world.wait(POLICY_V1.capacity_wait_s - 1)
    assert outcome(world.work("job.give_up", job_id)) == "not_due"
    world.wait(1)
    assert outcome(world.work("job.give_up", job_id)) == ["job.ended"]
    assert (world.job(job_id).status, world.job(job_id).failure_code) == ("failed", "no_capacity")
    assert outcome(world.work("job.give_up", job_id)) == "already_terminal"


def test_the_wait_of_a_retry_counts_from_the_end_of_the_last_attempt() -> None:
    world = World()
    job_id = world.running()
    world.wait(2 * POLICY_V1.capacity_wait_s)
    assert outcome(world.work("job.give_up", job_id)) == []
    world.over(job_id, "control_plane_lost")
    assert outcome(world.work("job.give_up", job_id)) == "not_due"
    world.at_us += POLICY_V1.capacity_wait_s * US_PER_S
    assert outcome(world.work("job.give_up", job_id)) == ["job.ended"]
