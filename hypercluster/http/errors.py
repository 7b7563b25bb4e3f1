"""One shape for everything that goes wrong: `{"detail": {code, message, field?, hint?, seq?, request_id}}`."""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from hypercluster.domain.codes import CODES
from hypercluster.domain.kernel import Refused
from hypercluster.http.replies import json_reply
from hypercluster.http.scope import request_id

MESSAGE_MAX = 500


@dataclass(eq=False)
class Problem(Exception):
    """A request cannot be answered as asked. `code` stands in `hypercluster.domain.codes`.

    allow: the methods that the path takes, for 405. close: the connection ends with this answer.
    """

    code: str
    message: str
    field: str | None = None
    hint: str | None = None
    seq: int | None = None
    allow: tuple[str, ...] = ()
    close: bool = False


def problem_of(refused: Refused, seq: int | None = None) -> Problem:
    """A refusal as a problem. seq: the number of the event that records it."""
    return Problem(refused.code, refused.message, refused.field, refused.hint, refused.seq or seq)


def schema_problem(error: ValidationError, code: str = "invalid_body") -> Problem:
    """The first fault that a model found, with the place of the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return Problem(code, f"{place}: {message}" if place else message, field=place or None)


def status_of(code: str) -> int:
    """The HTTP status of a code."""
    return CODES[code].status


def problem_reply(problem: Problem, scope_id: str) -> Response:
    """The answer that tells a problem."""
    detail: dict[str, Any] = {"code": problem.code, "message": _short(problem.message)}
    if problem.field is not None:
        detail["field"] = _short(problem.field)
    if problem.hint is not None:
        detail["hint"] = _short(problem.hint)
    if problem.seq is not None:
        detail["seq"] = problem.seq
    detail["request_id"] = scope_id
    headers: dict[str, str] = {}
    if problem.allow:
        headers["Allow"] = ", ".join(problem.allow)
    status = status_of(problem.code)
    if status in (429, 503):
        headers["Retry-After"] = "1"
    if problem.close:
        headers["Connection"] = "close"
    return json_reply({"detail": detail}, status, headers)


async def on_problem(request: Request, error: Exception) -> Response:
    """Exception handler of `Problem`."""
    if not isinstance(error, Problem):
        raise error
    return problem_reply(error, request_id(request.scope))


async def on_fault(request: Request, error: Exception) -> Response:
    """Exception handler of everything unforeseen; the server logs the error itself."""
    return problem_reply(Problem("internal_fault", f"our fault: {type(error).__name__}"), request_id(request.scope))


def _short(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= MESSAGE_MAX else clean[: MESSAGE_MAX - 1] + "…"
