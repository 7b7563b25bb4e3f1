"""Proposes what a policy should expect of a preflight, from preflights on named nodes."""

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack

from events.types.policy import ExpectedBandwidth
from hypercluster.domain.jobs.preflight import Verdict
from hypercluster.effects.networks import NodeFailure
from hypercluster.effects.plan import NodeTarget, mark_of, places
from hypercluster.effects.preflight import Seat, Sizes, run_preflight
from hypercluster.effects.ssh import Session, Ssh

RUNS = 3
SHARE_PPM = 800_000  # a healthy node should reach its row with some room
TIMEOUT_S = 60


async def calibrate(
    targets: Sequence[NodeTarget],
    *,
    ssh: Ssh,
    hardware_class: str,
    marker: str,
    sizes: Sizes | None = None,
    runs: int = RUNS,
    share_ppm: int = SHARE_PPM,
) -> list[ExpectedBandwidth]:
    """Rows for one rank alone, and for all ranks of the first 1, 2, ... n targets where those are more than one.

    Each is `share_ppm` of the median of `runs` runs. sizes: must be those that attempts will use.
    Raises NodeFailure when a node cannot be reached or answers wrongly.
    """
    shapes: list[tuple[NodeTarget, ...]] = [(_one_gpu(targets[0]),)]
    shapes += [tuple(targets[:count]) for count in range(1, len(targets) + 1)]
    rows = []
    async with AsyncExitStack() as stack:
        sessions: dict[str, Session] = {}
        for target in targets:
            connecting = ssh.session(target.node_id, target.endpoint, target.user, target.host_key)
            sessions[target.node_id] = await stack.enter_async_context(connecting)
        for index, nodes in enumerate(shapes):
            if index and sum(len(node.gpus) for node in nodes) == 1:
                continue
            measured = [await _measure(nodes, sessions, marker, sizes or Sizes()) for _ in range(runs)]
            expected = statistics.median_low([verdict.measured_bytes_per_s for verdict in measured])
            rows.append(
                ExpectedBandwidth(
                    program=measured[0].program,
                    hardware_class=hardware_class,
                    fabric=measured[0].transport,
                    nodes=len(nodes),
                    bytes_per_s=expected * share_ppm // 1_000_000,
                )
            )
    return rows


def _one_gpu(node: NodeTarget) -> NodeTarget:
    return NodeTarget(node.node_id, node.endpoint, node.user, node.host_key, node.gpus[:1])


async def _measure(nodes: tuple[NodeTarget, ...], sessions: dict[str, Session], marker: str, sizes: Sizes) -> Verdict:
    seats = [
        Seat(place.rank, sessions[place.node.node_id], f"{mark_of(marker, place.node_index)}/preflight-{place.rank}")
        for place in places(nodes)
    ]
    verdict = (await run_preflight(seats, marker=marker, timeout_s=TIMEOUT_S, sizes=sizes)).verdict
    if not verdict.ok:
        raise NodeFailure(verdict.failure_code or "", verdict.node_id, verdict.rank)
    return verdict
