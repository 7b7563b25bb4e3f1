"""GPU nodes as their providers claim them, and whether they are there."""

import msgspec

from events.envelope import Event
from events.registry import event


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a provider claims about a node. `hostname` and `ssh_endpoint` are commitments to private values."""

    gpu_model: str
    gpu_count: int
    tee_capability: str = "none"
    hostname: str | None = None
    ssh_endpoint: str | None = None
    ssh_user: str | None = None
    ssh_host_key: str | None = None  # "<algorithm> <base64>", as in known_hosts
    cpu_cores: int | None = None
    mem_mb: int | None = None
    location_hint: str | None = None
    inventory: str | None = None  # JSON text as claimed
    has_ib: bool = False
    ib_rate_bytes_per_s: int | None = None


@event("node.registered")
class NodeRegistered(Event, frozen=True):
    """A provider listed a node for the first time. Everything here is a claim until it is measured."""

    node_id: str
    provider_id: str
    facts: NodeFacts

    def stream(self) -> str:
        return f"node/{self.node_id}"


@event("node.updated")
class NodeUpdated(Event, frozen=True):
    """A provider changed what it claims about a node. Hardware facts cannot change under a lease."""

    node_id: str
    facts: NodeFacts

    def stream(self) -> str:
        return f"node/{self.node_id}"


@event("node.seen")
class NodeSeen(Event, frozen=True):
    """A heartbeat, kept at most once per half liveness window, or because it brought an offline node back."""

    node_id: str

    def stream(self) -> str:
        return f"node/{self.node_id}"


@event("node.offline")
class NodeOffline(Event, frozen=True):
    """No heartbeat for one and a half liveness windows and no lease on it: the node is not offered any more."""

    node_id: str
    reason_code: str
    last_seen_us: int

    def stream(self) -> str:
        return f"node/{self.node_id}"


@event("node.suspended")
class NodeSuspended(Event, frozen=True):
    """An operator suspended or drained a node: suspended ends its leases, draining lets them run out."""

    node_id: str
    status: str  # suspended | draining
    reason_code: str

    def stream(self) -> str:
        return f"node/{self.node_id}"


@event("node.readmitted")
class NodeReadmitted(Event, frozen=True):
    """An operator let a node back in."""

    node_id: str
    reason_code: str

    def stream(self) -> str:
        return f"node/{self.node_id}"
