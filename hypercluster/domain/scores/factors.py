"""The four factors of an attempt and what it is worth on each node, from the fold alone. Pure.

composite = correctness x efficiency x fabric_gate x tee_bonus, in ppm, rounded down; nothing else multiplies. A code
of `ZEROING` makes it 0 and leaves the factors as they are.
"""

from typing import NamedTuple

from events.types.policy import Policy
from events.types.scores import NodeValue
from hypercluster.domain.jobs import faults
from hypercluster.domain.kernel import PPM
from hypercluster.domain.scores.codes import BELOW_EFFICIENCY_FLOOR, NO_EXPECTED_VALUE, TRANSPORT_FORBIDDEN, ZEROING
from projections.credit import OWNER_UNKNOWN, SELF_DEAL
from projections.fold import State
from projections.folds.jobs import Attempt, Job
from projections.folds.policy import MetagraphRecord

UNVERIFIED = "unverified"  # hardware class and GPU class of every node until its GPUs are proven
SEPARATE = "separate"
NO_TEE_BONUS_PPM = PPM

_SOCKETS = frozenset({"eth", "socket", "tcp", "auto-eth"})


class Factors(NamedTuple):
    """The factors and what stands behind them. correctness, fabric_gate: 0 or 1; bandwidths in bytes per second."""

    correctness: int
    efficiency_ppm: int
    fabric_gate: int
    tee_bonus_ppm: int
    composite_ppm: int
    expected_bytes_per_s: int
    codes: tuple[str, ...]


def factors_of(job: Job, attempt: Attempt, policy: Policy) -> Factors:
    """What the challenge measured and recomputed of an ended attempt, as factors. policy: that of its start."""
    codes: set[str] = set()
    if attempt.failure_code is not None and faults.is_integrity(attempt.failure_code):
        codes.add(attempt.failure_code)
    correctness = 1 if attempt.status == "succeeded" and attempt.started_us is not None else 0
    expected = expected_bytes_per_s(attempt, policy)
    if expected == 0 and attempt.program:
        codes.add(NO_EXPECTED_VALUE)
    efficiency_ppm = min(attempt.measured_bytes_per_s * PPM // expected, PPM) if expected else 0
    counted_ppm = efficiency_ppm
    if efficiency_ppm < policy.efficiency_floor_ppm:
        codes.add(BELOW_EFFICIENCY_FLOOR)
        counted_ppm = 0
    gate = 0 if attempt.failure_code == TRANSPORT_FORBIDDEN or forbids(job.spec.fabric, attempt) else 1
    if gate == 0:
        codes.add(TRANSPORT_FORBIDDEN)
    composite = 0 if codes & ZEROING else correctness * counted_ppm * gate * NO_TEE_BONUS_PPM // PPM
    return Factors(correctness, efficiency_ppm, gate, NO_TEE_BONUS_PPM, composite, expected, tuple(sorted(codes)))


def expected_bytes_per_s(attempt: Attempt, policy: Policy) -> int:
    """The policy's row for (program, hardware class, transport seen, nodes); 0 where there is none."""
    wanted = attempt.program, UNVERIFIED, attempt.transport, len(attempt.nodes)
    rows = policy.expected_bandwidth
    return next(
        (row.bytes_per_s for row in rows if (row.program, row.hardware_class, row.fabric, row.nodes) == wanted), 0
    )


def forbids(mode: str, attempt: Attempt) -> bool:
    """Whether the requested mode forbids the transport that was seen.

    ib forbids sockets; nvlink_only forbids them between nodes, where no NVLink can have carried the data; auto and
    eth forbid nothing: who asked for Ethernet is not harmed by more.
    """
    if attempt.transport not in _SOCKETS:
        return False
    return mode == "ib" or (mode == "nvlink_only" and len(attempt.nodes) > 1)


def node_values(state: State, attempt: Attempt, policy: Policy, composite_ppm: int) -> tuple[NodeValue, ...]:
    """What each node did, in rank order."""
    started_us = attempt.placed_us if attempt.started_us is None else attempt.started_us
    metagraph = state.policy.metagraph_at(started_us)
    values: list[NodeValue] = []
    for ranks in attempt.nodes:
        provider = provider_of(state, ranks.node_id)
        values.append(
            NodeValue(
                node_id=ranks.node_id,
                provider=provider,
                gpus_used=len(ranks.gpus),
                gpu_class=UNVERIFIED,
                class_value_ppm=policy.unverified_value_ppm,
                value=composite_ppm * len(ranks.gpus) * policy.unverified_value_ppm // PPM,
                relation=relation(attempt.submitter, provider, metagraph, policy),
            )
        )
    return tuple(values)


def provider_of(state: State, node_id: str) -> str:
    """The hotkey of the node's provider."""
    return state.market.providers[state.nodes.nodes[node_id].provider_id].hotkey


def relation(submitter: str, provider: str, metagraph: MetagraphRecord | None, policy: Policy) -> str:
    """separate | self_deal | owner_unknown, by hotkey and by owner in the metagraph list in force at the start.

    Where the policy asks for known owners, an unknown one comes first, also of a hotkey that deals with itself.
    """
    owners = metagraph.owners if metagraph is not None else {}
    known = submitter in owners and provider in owners
    if not known and policy.credit_requires_known_owner:
        return OWNER_UNKNOWN
    if submitter == provider or (known and owners[submitter] == owners[provider]):
        return SELF_DEAL
    return SEPARATE if known else OWNER_UNKNOWN
