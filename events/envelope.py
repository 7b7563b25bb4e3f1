"""What surrounds every event: where it stands, when it happened, and which command caused it."""

from typing import ClassVar

import msgspec

ENVELOPE_VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all event types: plain values, past tense, units in the names, no floats.

    A subclass is registered with `events.registry.event` and says which stream it belongs to.
    """

    type_name: ClassVar[str]
    type_version: ClassVar[int]

    def stream(self) -> str:
        """The stream of this event, `<noun>/<id>` or a bare noun for singletons."""
        raise TypeError(f"{type(self).__name__} names no stream")


class CommandRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The command as it was decided, in the first event of its answer, so that it can be decided again.

    `body` is the request body verbatim; where a body holds private fields `public` stands in its place, the
    same JSON with each private value replaced by its commitment. A body above 8 KiB stands in the blob store
    and `body_blob` names it. `text`, `scheme` and `signature` are those of a signed command; `cause` (an
    event number) and `attempt` those of an internal one.
    """

    kind: str
    origin: str  # signed | internal
    received_us: int
    body: str | None = None
    public: str | None = None
    body_blob: str | None = None
    text: str | None = None
    scheme: str | None = None
    signature: str | None = None
    cause: int | None = None
    attempt: int | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One ledger entry. `data` holds the event's own fields, still encoded.

    sv: number of the event in its stream, from 1. at_us: microseconds since 1970, never decreasing.
    cmd: lower-case hex SHA-256 of the command. n of `of`: place among the command's events, from 1.
    actor: SS58 hotkey, or "system". rules: number of the rule set that decided.
    """

    v: int
    type: str
    tv: int
    stream: str
    sv: int
    at_us: int
    cmd: str
    n: int
    of: int
    actor: str
    rules: int
    data: msgspec.Raw
    command: CommandRecord | None = None


class Recorded(msgspec.Struct, frozen=True):
    """An event as folds see it: decoded, with its place (`pos`, from 1) and its exact stored bytes."""

    pos: int
    at_us: int
    envelope: Envelope
    event: Event
    entry: bytes
