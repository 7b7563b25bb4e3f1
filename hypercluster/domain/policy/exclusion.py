"""Operators suspend, ban, drain and readmit providers and nodes.

Suspending ends at once: listed offers are withdrawn and active leases end, in the same append. Draining lets leases
run out. A lease that an operator ends is billed up to that moment; it is nobody's fault.
"""

from typing import cast

from events.envelope import Event
from events.types.nodes import NodeReadmitted, NodeSuspended
from events.types.policy import ProviderReadmitted, ProviderSuspended
from hypercluster.domain.kernel import Accepted, Command, Context, Decision, Refused
from hypercluster.domain.market.ending import end_lease, withdraw_offers_of
from hypercluster.domain.policy.commands import Drain, Readmit, Suspend
from projections.fold import State
from projections.folds.market import Provider
from projections.folds.nodes import Node

ACTIVE, SUSPENDED, BANNED, DRAINING = "active", "suspended", "banned", "draining"

PROVIDER_SUSPENDED, PROVIDER_BANNED = "provider_suspended", "provider_banned"
NODE_SUSPENDED, NODE_DRAINED = "node_suspended", "node_drained"


def suspend(state: State, command: Command, context: Context) -> Decision:
    """Suspend a provider or a node, or ban a provider. A suspended provider can be banned, not the reverse."""
    body = cast(Suspend, command.body)
    if body.ban and body.provider_id is None:
        return Refused("target_invalid", "only a provider can be banned", field="ban")
    target = _target(state, body)
    if isinstance(target, Refused):
        return target
    if isinstance(target, Node):
        return _suspend_node(state, target, body.reason_code, context.at_us)
    status = BANNED if body.ban else SUSPENDED
    if target.status in (status, BANNED):
        return Accepted((), target.provider_id)
    reason_code = PROVIDER_BANNED if body.ban else PROVIDER_SUSPENDED
    node_ids = state.nodes.by_provider.get(target.provider_id, ())
    events = (
        ProviderSuspended(provider_id=target.provider_id, status=status, reason_code=body.reason_code),
        *withdraw_offers_of(state, node_ids=node_ids, reason_code=reason_code),
        *_end_leases(state, node_ids, context.at_us, reason_code),
    )
    return Accepted(events, target.provider_id)


def drain(state: State, command: Command, context: Context) -> Decision:
    """Take a node, or every node of a provider, out of the market when its lease has run out."""
    body = cast(Drain, command.body)
    target = _target(state, body)
    if isinstance(target, Refused):
        return target
    if isinstance(target, Node):
        return Accepted(_drain_nodes(state, (target.node_id,), body.reason_code), target.node_id)
    node_ids = state.nodes.by_provider.get(target.provider_id, ())
    return Accepted(_drain_nodes(state, node_ids, body.reason_code), target.provider_id)


def readmit(state: State, command: Command, context: Context) -> Decision:
    """Let a suspended or banned provider, or a suspended or draining node, back in. Offers stay withdrawn."""
    body = cast(Readmit, command.body)
    target = _target(state, body)
    if isinstance(target, Refused):
        return target
    if isinstance(target, Node):
        out = target.status in (SUSPENDED, DRAINING)
        back: Event = NodeReadmitted(node_id=target.node_id, reason_code=body.reason_code)
        return Accepted((back,) if out else (), target.node_id)
    back = ProviderReadmitted(provider_id=target.provider_id, reason_code=body.reason_code)
    return Accepted((back,) if target.status != ACTIVE else (), target.provider_id)


def _target(state: State, body: Suspend | Readmit | Drain) -> Provider | Node | Refused:
    if (body.provider_id is None) == (body.node_id is None):
        return Refused("target_invalid", "name either a provider_id or a node_id")
    if body.provider_id is not None:
        provider = state.market.providers.get(body.provider_id)
        return provider or Refused("provider_not_found", "no such provider", field="provider_id")
    node = state.nodes.nodes.get(body.node_id or "")
    return node or Refused("node_not_found", "no such node", field="node_id")


def _suspend_node(state: State, node: Node, reason_code: str, at_us: int) -> Decision:
    if node.status == SUSPENDED:
        return Accepted((), node.node_id)
    events = (
        NodeSuspended(node_id=node.node_id, status=SUSPENDED, reason_code=reason_code),
        *withdraw_offers_of(state, node_ids=(node.node_id,), reason_code=NODE_SUSPENDED),
        *_end_leases(state, (node.node_id,), at_us, NODE_SUSPENDED),
    )
    return Accepted(events, node.node_id)


def _drain_nodes(state: State, node_ids: tuple[str, ...], reason_code: str) -> tuple[Event, ...]:
    going = tuple(one for one in node_ids if state.nodes.nodes[one].status not in (SUSPENDED, DRAINING))
    suspended = (NodeSuspended(node_id=one, status=DRAINING, reason_code=reason_code) for one in going)
    return (*suspended, *withdraw_offers_of(state, node_ids=going, reason_code=NODE_DRAINED))


def _end_leases(state: State, node_ids: tuple[str, ...], at_us: int, reason_code: str) -> tuple[Event, ...]:
    held = (state.market.lease_of_node.get(node_id) for node_id in node_ids)
    lease_ids = dict.fromkeys(lease_id for lease_id in held if lease_id is not None)
    return tuple(
        event
        for lease_id in lease_ids
        for event in end_lease(
            state, state.market.leases[lease_id], at_us, status="failed", reason_code=reason_code, fault="none"
        )
    )
