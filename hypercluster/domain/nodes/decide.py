"""Which nodes there are, who may change them, and when they count as gone."""

from typing import cast

from msgspec.structs import replace

from events.envelope import Event
from events.types.nodes import NodeFacts, NodeOffline, NodeRegistered, NodeSeen, NodeUpdated
from events.types.policy import Policy
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Ids, Refused
from hypercluster.domain.market.ending import withdraw_misfits
from hypercluster.domain.market.supply import active_lease, find_provider
from hypercluster.domain.nodes import codes as _codes  # noqa: F401 (its import registers them)
from hypercluster.domain.nodes.commands import HeartbeatNodes, RegisterNode
from hypercluster.domain.nodes.facts import facts_of
from hypercluster.domain.nodes.internal import ReclaimNode
from hypercluster.domain.nodes.liveness import is_gone, is_seen_due, silence_limit_us
from projections.fold import State
from projections.folds.market import Provider
from projections.folds.nodes import Node

NO_HEARTBEAT = "no_heartbeat"


def register(state: State, command: Command, context: Context) -> Decision:
    """A provider lists a node, or changes what it claims about it."""
    body = cast(RegisterNode, command.body)
    provider = find_provider(state, command.actor)
    if isinstance(provider, Refused):
        return provider
    if provider.status != "active":
        return Refused("provider_not_active", f"the provider is {provider.status}")
    node = _existing(state, body, provider)
    if node is not None and node.provider_id != provider.provider_id:
        return Refused("node_not_owned", f"node {node.node_id} belongs to another provider", field="node_id")
    policy = state.policy.policy_at(context.at_us).policy
    facts = facts_of(body, None if node is None else node.facts, policy.inventory_bytes_max)
    if isinstance(facts, Refused):
        return facts
    if facts.ssh_host_key is not None and not _may_pin(state, facts.ssh_host_key, provider, node):
        return Refused("host_key_taken", "another node has pinned this SSH host key", field="ssh_host_key")
    if node is None:
        return _add(state, command, provider, facts, policy)
    return _update(state, node, facts, context.at_us, policy)


def _existing(state: State, body: RegisterNode, provider: Provider) -> Node | None:
    """The node that the body speaks of: by its id, else the provider's own node with this host key."""
    if body.node_id is not None:
        return state.nodes.nodes.get(body.node_id)
    node_id = state.nodes.by_host_key.get(body.ssh_host_key or "")
    node = None if node_id is None else state.nodes.nodes[node_id]
    return node if node is not None and node.provider_id == provider.provider_id else None


def _may_pin(state: State, host_key: str, provider: Provider, node: Node | None) -> bool:
    """Whether the key is free, this node's own, or held by another provider whom an operator has excluded.

    Host keys are public, so anybody can pin one first; an operator's suspension is the way out. A provider's own
    suspended node gives its key to no other node of the same provider.
    """
    holder_id = state.nodes.by_host_key.get(host_key)
    if holder_id is None or (node is not None and holder_id == node.node_id):
        return True
    holder = state.nodes.nodes[holder_id]
    if holder.provider_id == provider.provider_id:
        return False
    return holder.status == "suspended" or state.market.providers[holder.provider_id].status != "active"


def _add(state: State, command: Command, provider: Provider, facts: NodeFacts, policy: Policy) -> Decision:
    if len(state.nodes.by_provider.get(provider.provider_id, ())) >= policy.nodes_per_hotkey_max:
        return Refused("too_many_nodes", f"a provider has at most {policy.nodes_per_hotkey_max} nodes")
    wanted = cast(RegisterNode, command.body).node_id
    node_id = wanted or Ids(state.ledger.info["ledger"].seed, command).new("node")
    event = NodeRegistered(node_id=node_id, provider_id=provider.provider_id, facts=facts)
    return Accepted((event,), node_id, created=True)


def _update(state: State, node: Node, facts: NodeFacts, at_us: int, policy: Policy) -> Decision:
    """A leased node keeps its hardware facts; the same private value under a new salt cannot be told from another."""
    if facts == node.facts:
        seen: tuple[Event, ...] = (NodeSeen(node_id=node.node_id),) if is_seen_due(node, at_us, policy) else ()
        return Accepted(seen, node.node_id, seq=node.seen_pos)
    described = replace(node.facts, hostname=facts.hostname, location_hint=facts.location_hint)
    if facts != described and active_lease(state, node.node_id, at_us) is not None:
        hint = "leave out ssh_endpoint, ssh_user, ssh_host_key and inventory while the lease runs"
        return Refused("node_under_lease", "a leased node keeps its hardware facts", hint=hint)
    updated = NodeUpdated(node_id=node.node_id, facts=facts)
    return Accepted((updated, *withdraw_misfits(state, node.node_id, facts)), node.node_id)


def heartbeat(state: State, command: Command, context: Context) -> Decision:
    """Nodes are alive. Answers the named node, or the provider whose nodes all are."""
    body = cast(HeartbeatNodes, command.body)
    provider = find_provider(state, command.actor)
    if isinstance(provider, Refused):
        return provider
    nodes = _named_nodes(state, provider, body.node_id)
    if isinstance(nodes, Refused):
        return nodes
    policy = state.policy.policy_at(context.at_us).policy
    due = [node.node_id for node in nodes if is_seen_due(node, context.at_us, policy)]
    subject = provider.provider_id if body.node_id is None else body.node_id
    seen_pos = max(node.seen_pos for node in nodes)
    return Accepted(tuple(NodeSeen(node_id=node_id) for node_id in due), subject, seq=None if due else seen_pos)


def _named_nodes(state: State, provider: Provider, node_id: str | None) -> list[Node] | Refused:
    if node_id is None:
        own = state.nodes.by_provider.get(provider.provider_id, ())
        return [state.nodes.nodes[one] for one in own] or Refused("no_nodes", "the provider has no nodes")
    node = state.nodes.nodes.get(node_id)
    if node is None:
        return Refused("node_not_found", f"there is no node {node_id}", field="node_id")
    if node.provider_id != provider.provider_id:
        return Refused("node_not_owned", f"node {node_id} belongs to another provider", field="node_id")
    return [node]


def reclaim(state: State, command: Command, context: Context) -> Decision:
    """A node that nobody has seen and nobody rents is not offered any more."""
    body = cast(ReclaimNode, command.body)
    node = state.nodes.nodes.get(body.node_id)
    if node is None:
        return Refused("node_not_found", f"there is no node {body.node_id}")
    if node.held_by is not None:
        return Refused("node_under_lease", f"lease {node.held_by} protects the node")
    if node.status != "healthy":
        return Accepted((), node.node_id, seq=node.last_pos)
    if body.last_seen_us not in (None, node.last_seen_us):
        return Refused("not_due", "the node was seen since")
    limit_us, at_us = silence_limit_us(state.policy.policy_at(context.at_us).policy), context.at_us
    if state.ledger.info["ledger"].profile == "sim":
        limit_us, at_us = body.limit_us or limit_us, at_us + body.aged_us
    if not is_gone(node, at_us, limit_us):
        return Refused("not_due", "the node was seen within one and a half liveness windows")
    event = NodeOffline(node_id=node.node_id, reason_code=NO_HEARTBEAT, last_seen_us=node.last_seen_us)
    return Accepted((event,), node.node_id)


DECIDERS = {"node.register": register, "node.heartbeat": heartbeat, "node.reclaim": reclaim}
