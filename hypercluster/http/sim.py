"""Hooks of the sim profile, unsigned, as the reference's scenarios call them. Elsewhere they do not exist."""

from typing import Annotated

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from hypercluster.domain.kernel import Body
from hypercluster.http.commands import parse_json
from hypercluster.http.errors import Problem, schema_problem
from hypercluster.http.limits import read_body
from hypercluster.http.replies import json_reply
from hypercluster.http.shared import Shared

BODY_BYTES_MAX = 16 * 1024


class Drain(Body):
    """Enter drain mode, or leave it."""

    draining: bool = True


class IdleReclaim(Body):
    """Take silent nodes offline. age_heartbeats_seconds: pretend that all were last seen so long ago."""

    liveness_seconds: Annotated[int, Field(ge=1, le=86_400)] = 30
    age_heartbeats_seconds: Annotated[int, Field(ge=0, le=86_400_000)] | None = None


async def show_drain(shared: Shared, _request: Request) -> Response:
    """Whether the service drains."""
    return json_reply({"ok": True, "draining": shared.service.draining})


async def set_drain(shared: Shared, request: Request) -> Response:
    """Enter or leave drain mode."""
    body = await _read(shared, request, Drain)
    was_draining = shared.service.draining
    shared.service.set_draining(body.draining)
    return json_reply({"ok": True, "draining": shared.service.draining, "was_draining": was_draining})


async def idle_reclaim(shared: Shared, request: Request) -> Response:
    """Reclaim idle nodes now."""
    body = await _read(shared, request, IdleReclaim)
    found = await shared.service.idle_reclaim(
        liveness_seconds=body.liveness_seconds, age_seconds=body.age_heartbeats_seconds
    )
    return json_reply({"ok": True, **found})


async def _read[B: Body](shared: Shared, request: Request, model: type[B]) -> B:
    body = await read_body(request.scope, request.receive, BODY_BYTES_MAX, shared.limits.idle_s)
    value = parse_json(body)
    if not isinstance(value, dict | None):
        raise Problem("invalid_body", "the body must be a JSON object")
    try:
        return model.model_validate(value or {})
    except ValidationError as error:
        raise schema_problem(error) from error
