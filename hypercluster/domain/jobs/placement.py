"""Which nodes and GPUs a gang gets. Pure and exact: every chosen node takes nproc_per_node ranks, one per GPU.

Which nodes fit does not depend on what else is chosen, so the best set is the first `nnodes` in the order of
preference:

* pack takes the tightest fit (fewest free GPUs that suffice), so that large gaps stay whole for large jobs;
* spread takes the emptiest nodes.

Ties break by the faster InfiniBand where the job asks for it, then by the bytes of the node id. The order of the
nodes is the order of the ranks; the lowest free GPU indices come first. Permuting the inventory changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from events.types.jobs import NodeRanks

PACK = "pack"
SPREAD = "spread"

TOO_FEW_GPUS = "too_few_gpus"
MISSING_IB = "missing_ib"
GPUS_BUSY = "gpus_busy"


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """One node as the planner sees it. gpu_count: all its GPUs; free_gpus: indices; rate: of InfiniBand, bytes/s."""

    node_id: str
    gpu_count: int
    free_gpus: tuple[int, ...]
    has_ib: bool = False
    rate: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """nnodes distinct nodes with nproc_per_node ranks each. fabric: auto | ib | eth | nvlink_only."""

    nnodes: int
    nproc_per_node: int
    policy: str = PACK
    fabric: str = "auto"


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes in rank order. The first hosts rank 0."""

    nodes: tuple[NodeRanks, ...]

    @property
    def master_node(self) -> str:
        """The node where the ranks meet."""
        return self.nodes[0].node_id


@dataclass(frozen=True, slots=True)
class Rejected:
    """Too few nodes fit. fitting: how many do; reasons: node_id -> the first reason against it, by node id."""

    fitting: int
    reasons: dict[str, str]

    @property
    def reason_code(self) -> str:
        """The reason closest to being solved: busy GPUs, InfiniBand, size. No node at all counts as size."""
        found = set(self.reasons.values())
        return next((code for code in (GPUS_BUSY, MISSING_IB) if code in found), TOO_FEW_GPUS)


def plan(inventory: Sequence[NodeRoom], request: Request) -> Plan | Rejected:
    """Nodes and GPUs for the whole gang, or why there is none."""
    reasons = {room.node_id: reason for room in inventory if (reason := _against(room, request)) is not None}
    fitting = sorted((room for room in inventory if room.node_id not in reasons), key=lambda room: _rank(room, request))
    if len(fitting) < request.nnodes:
        return Rejected(len(fitting), dict(sorted(reasons.items())))
    return Plan(
        tuple(
            NodeRanks(node_id=room.node_id, gpus=tuple(sorted(room.free_gpus)[: request.nproc_per_node]))
            for room in fitting[: request.nnodes]
        )
    )


def _against(room: NodeRoom, request: Request) -> str | None:
    if room.gpu_count < request.nproc_per_node:
        return TOO_FEW_GPUS
    if request.fabric == "ib" and not room.has_ib:
        return MISSING_IB
    if len(room.free_gpus) < request.nproc_per_node:
        return GPUS_BUSY
    return None


def _rank(room: NodeRoom, request: Request) -> tuple[int, int, bytes]:
    free = len(room.free_gpus)
    rate = room.rate if request.fabric == "ib" else 0
    return (-free if request.policy == SPREAD else free), -rate, room.node_id.encode()
