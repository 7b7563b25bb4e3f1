"""What a gang is to do, how it went, and the environment of its ranks."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypercluster.effects.preflight import Sizes

_FABRIC_ENV = {
    "eth": {"NCCL_NET": "Socket"},
    "ib": {"NCCL_NET": "IB"},
    "nvlink_only": {"NCCL_P2P_LEVEL": "NVL"},
}


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """One node of a gang. It runs len(gpus) consecutive ranks, local rank i on GPU gpus[i]."""

    node_id: str
    endpoint: str
    user: str
    host_key: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GangPlan:
    """One attempt. nodes stand in rank order; env holds private values; marker is unique to the attempt.

    gang_timeout_s bounds everything before the entrypoint, timeout_s the entrypoint. The lease is renewed every
    lease_renew_s; a node that has seen no renewal for lease_stale_s ends the attempt by itself.
    """

    job_id: str
    attempt_no: int
    marker: str
    nodes: tuple[NodeTarget, ...]
    master_node: str
    entrypoint: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    timeout_s: float
    kill_grace_s: float
    gang_timeout_s: float
    image_digest: str
    fabric: str
    backend: str
    profile: str
    output_cap_bytes: int
    sizes: Sizes = field(default_factory=Sizes)
    lease_renew_s: float = 2.0
    lease_stale_s: float = 10.0


@dataclass(frozen=True, slots=True)
class GangTrace:
    """All that cleaning up needs to know of an attempt."""

    marker: str
    nodes: tuple[NodeTarget, ...]
    kill_grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class RunningFacts:
    """The preflight is through and every rank is ready; recomputed from the transcript."""

    program: str
    transport: str
    measured_bytes_per_s: int
    transcript: bytes


@dataclass(frozen=True, slots=True)
class RankOutput:
    """How one rank ended. exit_code: None when it was ended or lost, negative for a signal.

    stdout and stderr are cut at the cap; the byte counts are of all that was written, by the node's count.
    """

    rank: int
    exit_code: int | None
    stdout: bytes
    stdout_bytes: int
    stderr: bytes
    stderr_bytes: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """phase: connect | preflight | main | collect, the one that ended it. node_id and rank: the first that failed."""

    phase: str
    failure_code: str | None
    node_id: str | None
    rank: int | None
    transcript: bytes | None
    ranks: tuple[RankOutput, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one rank runs: node_index counts plan.nodes."""

    rank: int
    local_rank: int
    node_index: int
    node: NodeTarget


def tag_of(marker: str) -> str:
    """32 hex characters: the marker's form in process environments and directory names on nodes."""
    return hashlib.sha256(marker.encode()).hexdigest()[:32]


def mark_of(marker: str, node_index: int) -> str:
    """What the processes of one node carry, followed by "/" and the name of the process."""
    return f"{tag_of(marker)}/{node_index}"


def places(nodes: tuple[NodeTarget, ...]) -> Iterator[Place]:
    """All ranks in order."""
    rank = 0
    for node_index, node in enumerate(nodes):
        for local_rank in range(len(node.gpus)):
            yield Place(rank, local_rank, node_index, node)
            rank += 1


def rank_env(plan: GangPlan, place: Place, master: tuple[str, int]) -> dict[str, str]:
    """The user's variables, then ours, which win. master: address and port of the rendezvous.

    A rank sees all GPUs that the gang has on its node and takes the one with its LOCAL_RANK, as under torchrun.
    """
    world = sum(len(node.gpus) for node in plan.nodes)
    ours = {
        "RANK": place.rank,
        "LOCAL_RANK": place.local_rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": len(place.node.gpus),
        "GROUP_RANK": place.node_index,
        "NODE_RANK": place.node_index,
        "GROUP_WORLD_SIZE": len(plan.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": master[0],
        "MASTER_PORT": master[1],
        "TORCHELASTIC_RUN_ID": plan.job_id,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_USE_AGENT_STORE": False,  # rank 0 hosts the store itself
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in place.node.gpus),
        "HYPER_JOB_ID": plan.job_id,
        "HYPER_ATTEMPT": plan.attempt_no,
        "HYPER_BACKEND": plan.backend,
        "HYPER_FABRIC_MODE": plan.fabric,
    }
    return {**plan.env, **_FABRIC_ENV.get(plan.fabric, {}), **{key: str(value) for key, value in ours.items()}}
