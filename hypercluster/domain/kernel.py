"""What all areas share: commands, decisions, ids, money. Pure."""

import hashlib
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from events.envelope import Event

US_PER_S = 1_000_000
US_PER_H = 3_600 * US_PER_S
PPM = 1_000_000
RULES = 1  # number of the rule set that this release decides by

SYSTEM = "system"


class Body(BaseModel):
    """Base of request bodies: no coercion, unknown keys ignored as the reference does. Frozen."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class StrictBody(Body):
    """Base of bodies on routes that the reference does not have: unknown keys are refused."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class NoBody(Body):
    """For commands without a body; whatever is sent is ignored."""


@dataclass(frozen=True, slots=True)
class Command:
    """A wish to be decided.

    kind: "<noun>.<verb>". actor: SS58 hotkey, or SYSTEM. origin: signed | internal. body: the parsed request,
    private values already replaced by commitments. path: values of the path's parameters. digest: 32 bytes,
    unique for ever; cause and attempt belong to internal commands; text, scheme, signature to signed ones.
    nonce: that of the signed text. body_text: what stands in the ledger for the body.
    """

    kind: str
    actor: str
    origin: str
    body: BaseModel
    digest: bytes
    received_us: int
    path: dict[str, str] = field(default_factory=dict)
    body_text: str = ""
    cause: int | None = None
    attempt: int | None = None
    nonce: str | None = None
    scheme: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """Events to append, in order, and the id of the object that the answer shows.

    No events: nothing to change (it was so already). `seq` then names the event that made it so.
    """

    events: tuple[Event, ...]
    subject: str
    created: bool = False
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Expected, not an error. `code` is stable (`hypercluster.domain.codes`), `message` is for a person."""

    code: str
    message: str
    field: str | None = None
    hint: str | None = None
    seq: int | None = None


type Decision = Accepted | Refused


@dataclass(frozen=True, slots=True)
class Context:
    """What a decider may know beside the state: the time of the group, and committed ledger facts for snapshots.

    size and root: of the last committed events, before this group; root is hex.
    """

    at_us: int
    size: int
    root: str


class Ids:
    """Ids of one command: UUID text from SHA-256 of (ledger seed, command digest, kind, index)."""

    def __init__(self, seed: bytes, command: Command) -> None:
        self._prefix = seed + command.digest
        self._next: dict[str, int] = {}

    def new(self, kind: str) -> str:
        """The next id for this kind of object, 36 characters."""
        index = self._next.get(kind, 0)
        self._next[kind] = index + 1
        text = hashlib.sha256(self._prefix + f"{kind}:{index}".encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def internal_digest(kind: str, cause: int, attempt: int) -> bytes:
    """Identity of an internal command: the same effect reported twice is one command."""
    return hashlib.sha256(f"internal\n{kind}\n{cause}\n{attempt}".encode()).digest()


def digest_of(data: bytes) -> str:
    """`sha256:` and 64 lower-case hex."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
