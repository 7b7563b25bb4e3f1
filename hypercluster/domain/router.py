"""From a request, or from the ledger, to the command that is decided: one table, one way. Pure."""

import base64
import hashlib
import re
from typing import NamedTuple

from pydantic import BaseModel

from events.envelope import CommandRecord, Envelope
from hypercluster.domain import strict_json
from hypercluster.domain.identity import signed_text
from hypercluster.domain.internal import INTERNAL
from hypercluster.domain.jobs.commands import ROUTES as JOB_ROUTES
from hypercluster.domain.kernel import SYSTEM, Command, internal_digest
from hypercluster.domain.market.commands import ROUTES as MARKET_ROUTES
from hypercluster.domain.nodes.commands import ROUTES as NODE_ROUTES
from hypercluster.domain.policy.commands import ROUTES as POLICY_ROUTES
from hypercluster.domain.route import Route

ROUTES: tuple[Route, ...] = (*MARKET_ROUTES, *NODE_ROUTES, *JOB_ROUTES, *POLICY_ROUTES)

_PARAMETER = re.compile(r"\{(\w+)\}")
_ID = r"(?P<\1>[A-Za-z0-9._-]{1,36})"
_PATTERNS = [(re.compile(_PARAMETER.sub(_ID, route.path)), route) for route in ROUTES]


class Match(NamedTuple):
    """The route of a request and the values of its path's parameters."""

    route: Route
    path: dict[str, str]


class UnroutedCommand(ValueError):
    """The recorded command has no route or kind in this release."""


def match(method: str, path: str) -> Match | None:
    """The mutating route for this method and path (without query), or None."""
    for pattern, route in _PATTERNS:
        if route.method == method and (found := pattern.fullmatch(path)):
            return Match(route, found.groupdict())
    return None


def parse_body(model: type[BaseModel], text: str) -> BaseModel:
    """Body text into its model; an empty text counts as an empty object.

    Raises: strict_json.StrictJsonError, pydantic.ValidationError
    """
    value = strict_json.loads(text.encode()) if text else {}
    return model.model_validate({} if value is None else value)


def signed_command(
    matched: Match,
    record: CommandRecord,
    *,
    actor: str,
    nonce: str | None,
    body: str,
    model: BaseModel | None = None,
) -> Command:
    """The command of a signed request. body: its text, private values already replaced. model: what it parses to."""
    return Command(
        kind=matched.route.kind,
        actor=actor,
        origin="signed",
        body=model or parse_body(matched.route.body, body),
        digest=hashlib.sha256((record.text or "").encode()).digest(),
        received_us=record.received_us,
        path=matched.path,
        body_text=body,
        nonce=nonce,
        scheme=record.scheme,
    )


def internal_command(kind: str, body: BaseModel, *, cause: int, attempt: int, received_us: int) -> Command:
    """What a worker reports."""
    return Command(
        kind=kind,
        actor=SYSTEM,
        origin="internal",
        body=body,
        digest=internal_digest(kind, cause, attempt),
        received_us=received_us,
        body_text=strict_json.dumps(body.model_dump(mode="json", exclude_none=True)),
        cause=cause,
        attempt=attempt,
    )


def record_of(command: Command) -> CommandRecord:
    """The record of an internal command."""
    return CommandRecord(
        kind=command.kind,
        origin="internal",
        received_us=command.received_us,
        body=command.body_text,
        cause=command.cause,
        attempt=command.attempt,
    )


def command_of(envelope: Envelope, blob: bytes | None = None) -> Command:
    """The command that this first event of its answer records, to be decided again.

    blob: the body, where the record names one (`body_blob`). Raises: UnroutedCommand, and what `parse_body` raises.
    """
    record = envelope.command
    if record is None:
        raise UnroutedCommand("the event records no command")
    body = blob.decode() if blob is not None else record.body if record.body is not None else record.public or ""
    if record.origin == "internal":
        model = INTERNAL.get(record.kind)
        if model is None or record.cause is None or record.attempt is None:
            raise UnroutedCommand(f"no internal command {record.kind}")
        return internal_command(
            record.kind,
            parse_body(model, body),
            cause=record.cause,
            attempt=record.attempt,
            received_us=record.received_us,
        )
    method, path, nonce = _signed_parts(record)
    matched = match(method, path)
    if matched is None or matched.route.kind != record.kind:
        raise UnroutedCommand(f"no route for {record.kind} at {method} {path}")
    return signed_command(matched, record, actor=envelope.actor, nonce=nonce, body=body)


def request_ms(record: CommandRecord) -> int:
    """What prefixes the command's id: the signed time in milliseconds, or of an internal command its cause.

    Both only depend on the command, so that the same one reported twice has one id.
    """
    if record.origin == "internal":
        return record.cause or 0
    return signed_text.parse(record.text or "").seconds * 1000


def _signed_parts(record: CommandRecord) -> tuple[str, str, str]:
    """Method, path without query, nonce."""
    text = signed_text.parse(record.text or "")
    return text.method, text.path.partition("?")[0], text.nonce


def signature_bytes(record: CommandRecord) -> bytes:
    """The signature as it was sent, decoded."""
    return base64.b64decode(record.signature or "")
