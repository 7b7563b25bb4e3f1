"""The planner against a search through all sets of nodes."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from hypercluster.domain.jobs.placement import NodeRoom, Plan, Rejected, Request, plan

REQUESTS = st.builds(
    Request,
    nnodes=st.integers(1, 4),
    nproc_per_node=st.integers(1, 4),
    policy=st.sampled_from(["pack", "spread"]),
    fabric=st.sampled_from(["auto", "ib", "eth", "nvlink_only"]),
)


@st.composite
def inventories(draw: st.DrawFn) -> list[NodeRoom]:
    ids = draw(st.lists(st.text("abz-ä", min_size=1, max_size=3), unique=True, max_size=7))
    rooms = []
    for node_id in ids:
        count = draw(st.integers(0, 6))
        free = draw(st.lists(st.integers(0, max(0, count - 1)), unique=True, max_size=count))
        rooms.append(NodeRoom(node_id, count, tuple(free), draw(st.booleans()), draw(st.integers(0, 2))))
    return rooms


def fits(room: NodeRoom, request: Request) -> bool:
    return len(room.free_gpus) >= request.nproc_per_node and (request.fabric != "ib" or room.has_ib)


@given(inventories(), REQUESTS)
@settings(max_examples=300)
def test_a_plan_is_found_exactly_when_there_is_one(inventory: list[NodeRoom], request: Request) -> None:
    found = plan(inventory, request)
    fitting = sum(fits(room, request) for room in inventory)
    assert isinstance(found, Plan) == (fitting >= request.nnodes)
    if isinstance(found, Rejected):
        assert found.fitting == fitting
        assert found.reasons.keys() == {room.node_id for room in inventory if not fits(room, request)}


@given(inventories(), REQUESTS)
@settings(max_examples=300)
def test_a_plan_is_what_was_asked_for(inventory: list[NodeRoom], request: Request) -> None:
    found = plan(inventory, request)
    if isinstance(found, Rejected):
        return
    rooms = {room.node_id: room for room in inventory}
    assert len({ranks.node_id for ranks in found.nodes}) == len(found.nodes) == request.nnodes
    for ranks in found.nodes:
        assert ranks.gpus == tuple(sorted(rooms[ranks.node_id].free_gpus)[: request.nproc_per_node])
        assert len(ranks.gpus) == request.nproc_per_node


@given(inventories(), REQUESTS)
@settings(max_examples=300)
def test_pack_leaves_the_fewest_gaps_and_spread_the_most_room(inventory: list[NodeRoom], request: Request) -> None:
    found = plan(inventory, request)
    if isinstance(found, Rejected):
        return
    rooms = {room.node_id: room for room in inventory}
    chosen = sum(len(rooms[ranks.node_id].free_gpus) for ranks in found.nodes)
    fitting = [len(room.free_gpus) for room in inventory if fits(room, request)]
    totals = [sum(some) for some in combinations(fitting, request.nnodes)]
    assert chosen == (min(totals) if request.policy == "pack" else max(totals))


@given(st.data())
@settings(max_examples=300)
def test_the_order_of_the_inventory_means_nothing(data: st.DataObject) -> None:
    inventory, request = data.draw(inventories()), data.draw(REQUESTS)
    shuffled = [
        NodeRoom(
            room.node_id, room.gpu_count, tuple(data.draw(st.permutations(room.free_gpus))), room.has_ib, room.rate
        )
        for room in data.draw(st.permutations(inventory))
    ]
    assert plan(shuffled, request) == plan(inventory, request)
