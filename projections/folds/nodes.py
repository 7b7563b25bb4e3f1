"""Nodes: what is claimed about them, whether they are there, who holds them."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from events.envelope import Event, Recorded
from events.types.market import LeaseEnded, LeaseStarted
from events.types.nodes import (
    NodeFacts,
    NodeOffline,
    NodeReadmitted,
    NodeRegistered,
    NodeSeen,
    NodeSuspended,
    NodeUpdated,
)
from projections.state import Journal, Table


class Node(msgspec.Struct, frozen=True):
    """A node. status: healthy | rented | offline | draining | suspended; `held_by` is the active lease's id.

    seen_pos: the event of `last_seen_us`. last_pos: the event that changed it last.
    """

    node_id: str
    provider_id: str
    facts: NodeFacts
    status: str
    last_seen_us: int
    created_us: int
    updated_us: int
    held_by: str | None = None
    seen_pos: int = 0
    last_pos: int = 0


class NodesState:
    """by_provider: provider_id -> node ids in order; held: active lease -> its node ids.

    by_host_key: pinned host key -> the node that pinned it last, whoever its provider is.
    """

    def __init__(self, journal: Journal) -> None:
        self.nodes: Table[str, Node] = Table("node", journal, mirrored=True)
        self.by_host_key: Table[str, str] = Table("node_by_host_key", journal)
        self.by_provider: Table[str, tuple[str, ...]] = Table("nodes_by_provider", journal)
        self.held: Table[str, tuple[str, ...]] = Table("nodes_of_lease", journal)


def _registered(state: NodesState, recorded: Recorded) -> None:
    event, at_us, pos = cast(NodeRegistered, recorded.event), recorded.at_us, recorded.pos
    state.nodes[event.node_id] = Node(
        event.node_id, event.provider_id, event.facts, "healthy", at_us, at_us, at_us, None, pos, pos
    )
    state.by_provider[event.provider_id] = (*state.by_provider.get(event.provider_id, ()), event.node_id)
    if event.facts.ssh_host_key is not None:
        state.by_host_key[event.facts.ssh_host_key] = event.node_id


def _updated(state: NodesState, recorded: Recorded) -> None:
    event = cast(NodeUpdated, recorded.event)
    node = state.nodes[event.node_id]
    old, new = node.facts.ssh_host_key, event.facts.ssh_host_key
    if old != new and old is not None and state.by_host_key.get(old) == node.node_id:
        del state.by_host_key[old]
    if new is not None and state.by_host_key.get(new) != node.node_id:
        state.by_host_key[new] = node.node_id
    state.nodes[event.node_id] = replace(_seen_again(node, recorded), facts=event.facts)


def _seen(state: NodesState, recorded: Recorded) -> None:
    event = cast(NodeSeen, recorded.event)
    state.nodes[event.node_id] = _seen_again(state.nodes[event.node_id], recorded)


def _seen_again(node: Node, recorded: Recorded) -> Node:
    return Node(
        node_id=node.node_id,
        provider_id=node.provider_id,
        facts=node.facts,
        status="healthy" if node.status == "offline" else node.status,
        last_seen_us=recorded.at_us,
        created_us=node.created_us,
        updated_us=recorded.at_us,
        held_by=node.held_by,
        seen_pos=recorded.pos,
        last_pos=recorded.pos,
    )


def _offline(state: NodesState, recorded: Recorded) -> None:
    """An operator's word stays: a suspended or draining node is not made anything else by its silence."""
    node = state.nodes[cast(NodeOffline, recorded.event).node_id]
    if node.status == "healthy":
        _set_status(state, recorded, node, "offline")


def _suspended(state: NodesState, recorded: Recorded) -> None:
    event = cast(NodeSuspended, recorded.event)
    _set_status(state, recorded, state.nodes[event.node_id], event.status)


def _readmitted(state: NodesState, recorded: Recorded) -> None:
    node = state.nodes[cast(NodeReadmitted, recorded.event).node_id]
    _set_status(state, recorded, node, "healthy" if node.held_by is None else "rented")


def _set_status(state: NodesState, recorded: Recorded, node: Node, status: str) -> None:
    state.nodes[node.node_id] = replace(node, status=status, updated_us=recorded.at_us, last_pos=recorded.pos)


def _lease_started(state: NodesState, recorded: Recorded) -> None:
    event = cast(LeaseStarted, recorded.event)
    state.held[event.lease_id] = event.node_ids
    for node_id in event.node_ids:
        node = state.nodes[node_id]
        status = "rented" if node.status == "healthy" else node.status
        _set_holder(state, recorded, node, status, event.lease_id)


def _lease_ended(state: NodesState, recorded: Recorded) -> None:
    lease_id = cast(LeaseEnded, recorded.event).lease_id
    for node_id in state.held[lease_id]:
        node = state.nodes[node_id]
        _set_holder(state, recorded, node, "healthy" if node.status == "rented" else node.status, None)
    del state.held[lease_id]


def _set_holder(state: NodesState, recorded: Recorded, node: Node, status: str, lease_id: str | None) -> None:
    state.nodes[node.node_id] = replace(
        node, status=status, held_by=lease_id, updated_us=recorded.at_us, last_pos=recorded.pos
    )


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    NodeRegistered: _registered,
    NodeUpdated: _updated,
    NodeSeen: _seen,
    NodeOffline: _offline,
    NodeSuspended: _suspended,
    NodeReadmitted: _readmitted,
    LeaseStarted: _lease_started,
    LeaseEnded: _lease_ended,
}
