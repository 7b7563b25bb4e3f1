"""The writing side: from a signed request to a decided command, and from the decision to an answer."""

from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from events.envelope import CommandRecord
from hypercluster.domain import router, sealing, strict_json
from hypercluster.domain.identity.authentication import Authenticated
from hypercluster.domain.jobs.commands import check_private as check_job
from hypercluster.domain.kernel import Command, Refused
from hypercluster.domain.nodes.commands import check_private as check_node
from hypercluster.domain.route import Route
from hypercluster.http.auth import Viewer, verify_request
from hypercluster.http.errors import Problem, problem_of, schema_problem
from hypercluster.http.limits import read_body
from hypercluster.http.ports import Service
from hypercluster.http.presenting import present
from hypercluster.http.query import Query
from hypercluster.http.reading import Reader
from hypercluster.http.replies import json_reply
from hypercluster.http.shared import Shared

INLINE_BYTES_MAX = 8 * 1024  # a longer body stands in the blob store


@dataclass(frozen=True, slots=True)
class Prepared:
    """A body ready to be decided. text: what stands in the ledger. is_public: private values were replaced in it.

    model: the text as a model, where nothing was replaced.
    """

    text: str
    is_public: bool = False
    openings: tuple[sealing.Opening, ...] = ()
    model: BaseModel | None = None


async def answer_command(shared: Shared, request: Request) -> Response:
    """Take one signed request through all checks, have it decided, show what it made.

    Everything before `submit` refuses without a trace: the nonce stays good.
    """
    service, scope = shared.service, request.scope
    arrived_us = service.now_us()
    matched = router.match(scope["method"], scope["path"])
    if matched is None:
        raise Problem("invalid_path", "an id in the path must be 1 to 36 of A-Z a-z 0-9 . _ -")
    body = await read_body(scope, request.receive, matched.route.body_max_bytes, shared.limits.idle_s)
    value = parse_json(body)
    signer = verify_request(service, scope, body, arrived_us)
    Query(scope["query_string"], ())
    if matched.route.kind == "job.submit" and service.disk_is_short():
        raise Problem("disk_short", "the ledger's disk is nearly full; jobs are taken again when there is room")
    prepared = prepare(service, matched.route, body, value, signer.hotkey)
    record = await _record(service, matched.route, prepared, signer, arrived_us)
    command = _command(matched, record, signer, prepared)
    # The decision goes on when the client hangs up or its time is over: what is queued cannot be cancelled.
    answer = await service.submit(command, record, prepared.openings)
    decision = answer.decision
    if isinstance(decision, Refused):
        raise problem_of(decision, answer.last)
    seq = decision.seq or answer.first or service.head()
    if answer.last is not None:
        shared.answered = max(shared.answered, answer.last)
    if not await service.read_at(shared.answered):
        return json_reply({"seq": seq, "id": decision.subject})  # decided; the read models are late
    shown = present(command.kind, Reader(service, Viewer(hotkey=signer.hotkey)), decision)
    return json_reply(shown | {"seq": seq}, headers={"X-Ledger-Seq": str(service.head())})


def parse_json(body: bytes) -> object:
    """The body's value; None for an empty body.

    Raises: Problem (invalid_json)
    """
    if not body:
        return None
    try:
        return strict_json.loads(body)
    except strict_json.StrictJsonError as error:
        raise Problem("invalid_json", str(error)) from error


def prepare(service: Service, route: Route, body: bytes, value: object, hotkey: str) -> Prepared:
    """Check the body against the route's model and replace its private values by commitments.

    Raises: Problem (invalid_body, private_salt_required, and the codes of the areas' private checks)
    """
    if value is None and not route.body_required:
        value = {}
        body = b""
    if not isinstance(value, dict):
        raise Problem("invalid_body", "the body must be a JSON object")
    fields = cast("dict[str, object]", value)
    plain = {key: item for key, item in fields.items() if key != sealing.SALT_FIELD}
    try:
        model = route.body.model_validate(plain)
    except ValidationError as error:
        raise schema_problem(error) from error
    if not route.private:
        return Prepared(body.decode(), model=model)
    refused = check_node(route.kind, fields) or check_job(route.kind, fields)
    if refused is not None:
        raise problem_of(refused)
    if sealing.SALT_FIELD not in fields and all(fields.get(name) is None for name in route.private):
        return Prepared(body.decode(), model=model)
    seed = b"\n".join((hotkey.encode(), route.kind.encode(), body))
    return _sealed(service, route, body, fields, seed)


def _sealed(service: Service, route: Route, body: bytes, fields: dict[str, object], seed: bytes) -> Prepared:
    """seed: of the salt that the server makes; the same request sent again must give the same commitments."""
    if sealing.lacks_salt(fields, service.profile):
        hint = f"add {sealing.SALT_FIELD}: 32 random hex digits, new for each body"
        raise Problem("private_salt_required", "env is set without a salt", sealing.SALT_FIELD, hint)
    try:
        salt = sealing.salt_of(fields) or service.private_salt(seed)
        sealed = sealing.seal(fields, route.private, salt)
    except sealing.SealingError as error:
        raise Problem("invalid_body", str(error), field=error.field) from error
    if not sealed.openings and sealing.SALT_FIELD not in fields:
        return Prepared(body.decode())
    openings = (*sealed.openings, sealing.body_opening(body, salt))
    return Prepared(strict_json.dumps(sealed.public), True, openings)


async def _record(
    service: Service, route: Route, prepared: Prepared, signer: Authenticated, arrived_us: int
) -> CommandRecord:
    text = prepared.text.encode()
    blob = await service.keep(text, private=False) if len(text) > INLINE_BYTES_MAX else None
    inline = prepared.text if blob is None else None
    return CommandRecord(
        kind=route.kind,
        origin="signed",
        received_us=arrived_us,
        body=None if prepared.is_public else inline,
        public=inline if prepared.is_public else None,
        body_blob=blob,
        text=signer.text,
        scheme=signer.scheme,
        signature=signer.signature,
    )


def _command(matched: router.Match, record: CommandRecord, signer: Authenticated, prepared: Prepared) -> Command:
    try:
        return router.signed_command(
            matched, record, actor=signer.hotkey, nonce=signer.nonce, body=prepared.text, model=prepared.model
        )
    except ValidationError as error:
        raise schema_problem(error) from error
