"""Nodes: what is claimed about them, whether they are there, who holds them."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from events.types.nodes import NodeFacts
from projections.state import Journal, Table


class Node(msgspec.Struct, frozen=True):
    """A node. status: healthy | rented | offline | draining | suspended; `held_by` is the active lease's id."""

    node_id: str
    provider_id: str
    facts: NodeFacts
    status: str
    last_seen_us: int
    created_us: int
    updated_us: int
    held_by: str | None = None


class NodesState:
    """by_host_key: (provider_id, pinned host key) -> node_id; by_provider: provider_id -> node ids in order."""

    def __init__(self, journal: Journal) -> None:
        self.nodes: Table[str, Node] = Table("node", journal, mirrored=True)
        self.by_host_key: Table[tuple[str, str], str] = Table("node_by_host_key", journal)
        self.by_provider: Table[str, tuple[str, ...]] = Table("nodes_by_provider", journal)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
