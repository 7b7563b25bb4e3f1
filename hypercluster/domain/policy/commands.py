"""What operators may ask. Every route is signed by a hotkey that the ledger names as an operator."""

from typing import Annotated

import msgspec
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from events.types.policy import Policy
from hypercluster.domain.kernel import StrictBody
from hypercluster.domain.route import Route

INTEGER_MAX = 2**53 - 1
ENTRIES_MAX = 4096

ReasonCode = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]
ObjectId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,36}$")]
Hotkey = Annotated[str, Field(min_length=1, max_length=64)]


def _read_policy(value: object) -> Policy:
    if isinstance(value, Policy):
        return value
    return msgspec.convert(value, Policy)  # its ValidationError is a ValueError, as pydantic wants


def _write_policy(value: Policy) -> object:
    return msgspec.to_builtins(value)


PolicyDocument = Annotated[
    Policy,
    BeforeValidator(_read_policy),
    PlainSerializer(_write_policy),
    WithJsonSchema({"type": "object", "title": "Policy", "description": "the whole policy, integers only"}),
]


class AdoptPolicy(StrictBody):
    """Adopt a policy from the next epoch edge on."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    policy: PolicyDocument


class Neuron(StrictBody):
    """One hotkey of the subnet and the coldkey that owns it."""

    uid: Annotated[int, Field(ge=0, le=65_535)]
    hotkey: Hotkey
    coldkey: Hotkey


class AdoptMetagraph(StrictBody):
    """Adopt the subnet's list of hotkeys and owners as of a block."""

    netuid: Annotated[int, Field(ge=0, le=65_535)]
    block: Annotated[int, Field(ge=0, le=INTEGER_MAX)]
    entries: Annotated[tuple[Neuron, ...], Field(strict=False, max_length=ENTRIES_MAX)]


class _Target(StrictBody):
    """A provider or a node, exactly one of both."""

    reason_code: ReasonCode
    provider_id: ObjectId | None = None
    node_id: ObjectId | None = None


class Suspend(_Target):
    """Suspend a provider or a node at once; a provider can be banned."""

    ban: bool = False


class Readmit(_Target):
    """Let a provider or a node back in."""


class Drain(_Target):
    """Let the leases of a node, or of all nodes of a provider, run out and start no new ones."""


class ChangeOperators(StrictBody):
    """Replace the whole list of operator hotkeys."""

    operators: Annotated[tuple[Hotkey, ...], Field(strict=False)]


class AcceptClock(StrictBody):
    """Accept the server's clock as it is now, after it has jumped."""


ROUTES = (
    Route("POST", "/v1/operator/policy", "policy.adopt", AdoptPolicy),
    Route("POST", "/v1/operator/metagraph", "metagraph.adopt", AdoptMetagraph, body_max_bytes=1024 * 1024),
    Route("POST", "/v1/operator/suspend", "operator.suspend", Suspend),
    Route("POST", "/v1/operator/readmit", "operator.readmit", Readmit),
    Route("POST", "/v1/operator/drain", "operator.drain", Drain),
    Route("POST", "/v1/operator/operators", "operators.change", ChangeOperators),
    Route("POST", "/v1/operator/clock", "clock.accept", AcceptClock, body_required=False),
)
