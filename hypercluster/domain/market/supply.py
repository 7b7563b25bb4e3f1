"""What stands for rent: providers, their nodes, and what may be claimed about them."""

from collections.abc import Collection, Sequence

from events.types.nodes import NodeFacts
from hypercluster.domain.kernel import Refused
from hypercluster.domain.nodes.liveness import is_gone, silence_limit_us
from projections.fold import State
from projections.folds.market import Lease, Provider
from projections.folds.nodes import Node

_TEE_RANKS = {"none": 0, "tdx": 1, "tdx+gpu_cc": 2}


def find_provider(state: State, hotkey: str) -> Provider | Refused:
    """The provider of this hotkey."""
    provider_id = state.market.by_hotkey.get(hotkey)
    if provider_id is None:
        return Refused("provider_not_found", "this hotkey is not a provider", hint="register as a provider first")
    return state.market.providers[provider_id]


def lease_on(state: State, node_id: str) -> Lease | None:
    """The lease on a node that has not ended, even where its time is over and nobody has said so yet."""
    lease_id = state.market.lease_of_node.get(node_id)
    return None if lease_id is None else state.market.leases[lease_id]


def active_lease(state: State, node_id: str, at_us: int) -> Lease | None:
    """The lease on a node whose time is not over."""
    lease = lease_on(state, node_id)
    return lease if lease is not None and lease.ends_at_us > at_us else None


def leases_on(state: State, node_ids: Collection[str]) -> tuple[Lease, ...]:
    """The leases on these nodes that have not ended, each once, in the order of the nodes."""
    found = (lease_on(state, node_id) for node_id in node_ids)
    return tuple({lease.lease_id: lease for lease in found if lease is not None}.values())


def nodes_of(state: State, provider_id: str) -> tuple[str, ...]:
    """The ids of a provider's nodes, in the order of their registration."""
    return state.nodes.by_provider.get(provider_id, ())


def why_not_offerable(state: State, node: Node, at_us: int) -> str | None:
    """Why the node cannot be offered or rented, or None. A lease on it is no reason to refuse an offer."""
    if node.status not in ("healthy", "rented"):
        return f"node {node.node_id} is {node.status}"
    policy = state.policy.policy_at(at_us).policy
    if active_lease(state, node.node_id, at_us) is None and is_gone(node, at_us, silence_limit_us(policy)):
        return f"node {node.node_id} was not seen for one and a half liveness windows"
    key = node.facts.ssh_host_key
    if key is not None and state.nodes.by_host_key.get(key) != node.node_id:
        return f"another node has pinned the SSH host key of node {node.node_id}"
    return None


def why_it_exceeds(facts: Sequence[NodeFacts], gpu_model: str, gpu_count: int, tee: str) -> str | None:
    """Why an offer of these nodes may not claim this hardware, or None."""
    if all(one.gpu_model != gpu_model for one in facts):
        return f"no node has {gpu_model}"
    total = sum(one.gpu_count for one in facts)
    if gpu_count > total:
        return f"{gpu_count} GPUs offered, the nodes have {total}"
    if not all(_has_tee(one.tee_capability, tee) for one in facts):
        return f"not every node has TEE {tee}"
    return None


def common_tee(facts: Sequence[NodeFacts]) -> str:
    """The TEE that an offer of these nodes claims by itself: the first node's if all have it, else none."""
    first = facts[0].tee_capability
    return first if all(_has_tee(one.tee_capability, first) for one in facts) else "none"


def _has_tee(capability: str, tee: str) -> bool:
    """Claiming less than a node has is no lie; words beyond the known three mean themselves only."""
    if capability == tee:
        return True
    return tee in _TEE_RANKS and _TEE_RANKS[tee] <= _TEE_RANKS.get(capability, 0)
