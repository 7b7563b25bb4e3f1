"""Bounds on what a stranger can make the server hold: bytes, time and requests at once."""

import asyncio
import secrets
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hypercluster.http.errors import Problem, problem_reply
from hypercluster.http.scope import request_id, set_deadline, set_request_id

KIB = 1024

# Answered however full the house is: a master that gets an error here costs the whole subnet its weights.
_ALWAYS_ANSWERED = ("/health", "/ready", "/version", "/internal/")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the service. Seconds and bytes."""

    headers_bytes: int = 32 * KIB
    idle_s: float = 15.0
    request_s: float = 60.0
    requests_at_once: int = 256
    connections: int = 1024
    streams: int = 64
    stream_heartbeat_s: float = 15.0
    stream_lag_events: int = 1000


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class Guard:
    """The outermost layer: names the request, bounds its headers and its time, and how many run at once."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        set_request_id(scope, secrets.token_hex(8))
        outgoing = _Outgoing(send, request_id(scope))
        problem = self._refusal(scope)
        if problem is not None:
            await problem_reply(problem, outgoing.request_id)(scope, receive, outgoing)
            return
        self._running += 1
        try:
            await self._bounded(scope, receive, outgoing)
        except ClientGone:
            return
        finally:
            self._running -= 1

    def _refusal(self, scope: Scope) -> Problem | None:
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        size += len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size > self._limits.headers_bytes:
            message = f"the headers have {size} bytes, at most {self._limits.headers_bytes} are taken"
            return Problem("headers_too_large", message, close=True)
        if self._running >= self._limits.requests_at_once and not scope["path"].startswith(_ALWAYS_ANSWERED):
            return Problem("overloaded", "too many requests run at once", hint="try again in a second")
        return None

    async def _bounded(self, scope: Scope, receive: Receive, outgoing: "_Outgoing") -> None:
        deadline = asyncio.timeout(self._limits.request_s)
        set_deadline(scope, deadline)
        try:
            async with deadline:
                await self._app(scope, receive, outgoing)
        except TimeoutError:
            if not deadline.expired() or outgoing.started:
                raise
            hint = "a command may still be decided: send the same request again, a replay names its event"
            problem = Problem("request_timeout", "the request took too long", hint=hint, close=True)
            await problem_reply(problem, outgoing.request_id)(scope, receive, outgoing)


class _Outgoing:
    """Puts the request's name on the answer and remembers whether it has begun."""

    def __init__(self, send: Send, name: str) -> None:
        self._send, self.request_id = send, name
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id.encode())]
        await self._send(message)


async def read_body(scope: Scope, receive: Receive, max_bytes: int, idle_s: float) -> bytes:
    """The whole body, counted while it arrives, so that chunked bodies cannot pass.

    Raises: Problem (body_too_large, request_timeout), ClientGone
    """
    too_large = Problem("body_too_large", f"the body exceeds {max_bytes} bytes")
    if _declared_length(scope) > max_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        try:
            async with asyncio.timeout(idle_s):
                message = await receive()
        except TimeoutError as error:
            raise Problem("request_timeout", "the body stopped arriving", close=True) from error
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise too_large
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return 0
