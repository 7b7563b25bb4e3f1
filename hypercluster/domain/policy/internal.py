"""How a ledger begins: two internal commands, of the first three events.

kind           cause   attempt   events
ledger.open    0       0         1 ledger.opened
policy.begin   1       0         2 policy.adopted, effective at once; 3 rules.activated
"""

from typing import Annotated

from pydantic import ConfigDict, Field

from hypercluster.domain.identity.signed_text import AUDIENCE
from hypercluster.domain.kernel import StrictBody
from hypercluster.domain.policy.commands import Hotkey, PolicyDocument


class OpenLedger(StrictBody):
    """The facts of event 1. public_key: hex of the Ed25519 key that signs checkpoints."""

    origin: str
    profile: Annotated[str, Field(pattern=r"^(production|sim)$")]
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    slug: str
    audience: Annotated[str, Field(pattern=f"^{AUDIENCE}$")]
    operators: Annotated[tuple[Hotkey, ...], Field(strict=False)]
    release: str


class BeginPolicy(StrictBody):
    """The first policy, and the rules of the release that opened the ledger."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    policy: PolicyDocument
    rules: int
    release: str
