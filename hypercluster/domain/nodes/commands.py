"""What providers ask about their nodes."""

from typing import Annotated

from pydantic import Field

from hypercluster.domain.kernel import Body, Refused
from hypercluster.domain.nodes.ssh_text import ENDPOINT_CHARS_MAX, is_endpoint
from hypercluster.domain.prices import Number
from hypercluster.domain.route import Route

NodeId = Annotated[str, Field(max_length=36, pattern=r"^[A-Za-z0-9._-]*[A-Za-z0-9][A-Za-z0-9._-]*$")]

_PRIVATE_CHARS_MAX = {
    "node.register": {"hostname": 256, "ssh_endpoint": ENDPOINT_CHARS_MAX},
    "lease.terminate": {"reason": 256},
}


class RegisterNode(Body):
    """A node's claims. hostname and ssh_endpoint are private: here they are commitments."""

    gpu_model: Annotated[str, Field(min_length=1, max_length=128)]
    gpu_count: Annotated[int, Field(ge=1, le=1024)]
    hostname: Annotated[str, Field(max_length=256)] | None = None
    ssh_endpoint: Annotated[str, Field(max_length=ENDPOINT_CHARS_MAX)] | None = None
    ssh_user: Annotated[str, Field(max_length=32)] | None = None
    ssh_host_key: Annotated[str, Field(max_length=4096)] | None = None
    cpu_cores: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    mem_gb: Annotated[Number, Field(ge=0, le=1_000_000)] | None = None
    location_hint: Annotated[str, Field(max_length=128)] | None = None
    tee_capability: Annotated[str, Field(max_length=32)] = "none"
    inventory: dict[str, object] | None = None
    node_id: NodeId | None = None
    client_request_id: Annotated[str, Field(max_length=128)] | None = None


class HeartbeatNodes(Body):
    """The named node is alive, or all nodes of the provider."""

    node_id: NodeId | None = None


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/nodes", "node.register", RegisterNode, private=("hostname", "ssh_endpoint")),
    Route("POST", "/v1/nodes/heartbeat", "node.heartbeat", HeartbeatNodes, body_required=False),
)


def check_private(kind: str, body: dict[str, object]) -> Refused | None:
    """Check private values before they are sealed: afterwards only their commitments are seen.

    Values that are no text are left to the body's model.
    """
    for field, chars_max in _PRIVATE_CHARS_MAX.get(kind, {}).items():
        value = body.get(field)
        if not isinstance(value, str):
            continue
        if len(value) > chars_max:
            return Refused("text_too_long", f"{field} has more than {chars_max} characters", field=field)
        if field == "ssh_endpoint" and not is_endpoint(value):
            return Refused(
                "invalid_ssh_endpoint", "ssh_endpoint is host, host:port, [IPv6] or [IPv6]:port", field=field
            )
    return None
