"""The ASGI application: one table of paths, its layers, and the shape of every error."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hypercluster.domain import router
from hypercluster.http import internal, routes_read, sim
from hypercluster.http.commands import answer_command
from hypercluster.http.errors import Problem, on_fault, on_problem, problem_reply
from hypercluster.http.limits import Guard, Limits
from hypercluster.http.ports import Service
from hypercluster.http.replies import json_reply
from hypercluster.http.routes_read import ReadRoute, answer_read
from hypercluster.http.scope import request_id
from hypercluster.http.shared import Shared
from hypercluster.http.views.meta import health_view, is_ready, version_view

type Handler = Callable[[Shared, Request], Awaitable[ASGIApp]]
type Methods = Mapping[str, Handler]

SIM = "sim"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Open while the service takes no writes: the way out of that state must not be shut.
OPEN_WHEN_NOT_READY = frozenset({"/health", "/ready", "/version", "/v1/operator/clock"})
OPEN_IN_SIM = frozenset({"/v1/sim/drain"})


class Application:
    """The ASGI app of one service. `stop_streams` ends open event streams, before the server waits for them."""

    def __init__(self, service: Service, limits: Limits | None = None) -> None:
        self.shared = Shared(service, limits or Limits())
        inner = Starlette(routes=_routes(self.shared), exception_handlers=_HANDLERS)
        inner.router.redirect_slashes = False
        self._app = Guard(_Gate(inner, service), self.shared.limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def stop_streams(self) -> None:
        """End every event stream, with the number to resume from. Belongs to the event loop."""
        self.shared.stop.set()


class _Gate:
    """Refuses percent-encoded paths, and writes while the service is not ready; before routing, as Base does."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._open = OPEN_WHEN_NOT_READY | (OPEN_IN_SIM if service.profile == SIM else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        writes = scope["method"] not in READING and scope["path"] not in self._open
        if writes and not is_ready(self._service.readiness()):
            return json_reply(NOT_READY, 503, {"Retry-After": "1"})
        if b"%" in (scope.get("raw_path") or b""):
            problem = Problem("invalid_path", "paths are not percent-encoded here")
            return problem_reply(problem, request_id(scope))
        return None


NOT_READY = {"detail": {"code": "runtime_not_ready", "detail": "mandatory runtime dependencies are unavailable"}}


class _Endpoint:
    """All methods of one path."""

    def __init__(self, shared: Shared, methods: Methods) -> None:
        self._shared, self._methods = shared, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._methods.get(scope["method"])
        if handler is None:
            raise Problem("method_not_allowed", "the path does not take this method", allow=tuple(self._methods))
        answer = await handler(self._shared, Request(scope, receive))
        await answer(scope, receive, send)


async def _health(shared: Shared, _request: Request) -> Response:
    """Always 200: whether the process is up."""
    return json_reply(health_view(shared.service))


async def _ready(shared: Shared, _request: Request) -> Response:
    """200 when writes are taken."""
    shown = health_view(shared.service)
    return json_reply(shown, 200 if shown["ready"] else 503)


async def _version(shared: Shared, _request: Request) -> Response:
    return json_reply(version_view(shared.service))


def _reading(route: ReadRoute) -> Handler:
    async def handle(shared: Shared, request: Request) -> ASGIApp:
        return await answer_read(shared, route, request)

    return handle


def endpoints(profile: str) -> dict[str, dict[str, Handler]]:
    """Every path of a profile with its methods; paths without parameters first, so that they win."""
    table: dict[str, dict[str, Handler]] = {
        "/health": {"GET": _health, "HEAD": _health},
        "/ready": {"GET": _ready, "HEAD": _ready},
        "/version": {"GET": _version, "HEAD": _version},
        "/internal/v1/get_weights": {"GET": internal.get_weights},
        "/internal/v1/work_units": {"GET": internal.work_units},
    }
    if profile == SIM:
        drain: dict[str, Handler] = dict.fromkeys(("POST", "PUT", "PATCH"), sim.set_drain)
        table["/v1/sim/drain"] = {"GET": sim.show_drain, **drain}
        table["/v1/sim/idle-reclaim"] = {"POST": sim.idle_reclaim}
    for read in routes_read.ROUTES:
        methods = ("GET",) if read.path.endswith("/stream") else ("GET", "HEAD")
        table.setdefault(read.path, {}).update(dict.fromkeys(methods, _reading(read)))
    for write in router.ROUTES:
        table.setdefault(write.path, {})[write.method] = answer_command
    return dict(sorted(table.items(), key=lambda item: "{" in item[0]))


class _FixedPaths(BaseRoute):
    """All paths without parameters: one look into a table, where a list of routes would be tried one by one."""

    def __init__(self, table: Mapping[str, ASGIApp]) -> None:
        self._table = table

    def matches(self, scope: Scope) -> tuple[Match, dict[str, Any]]:
        found = self._table.get(scope["path"]) if scope["type"] == "http" else None
        return (Match.NONE, {}) if found is None else (Match.FULL, {"endpoint": found, "path_params": {}})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["endpoint"](scope, receive, send)


def _routes(shared: Shared) -> list[BaseRoute]:
    table = {path: _Endpoint(shared, methods) for path, methods in endpoints(shared.service.profile).items()}
    fixed = {path: endpoint for path, endpoint in table.items() if "{" not in path}
    return [_FixedPaths(fixed), *(Route(path, table[path]) for path in table if path not in fixed)]


async def _on_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses."""
    known = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    status = error.status_code if isinstance(error, HTTPException) else 404
    problem = Problem(known.get(status, "not_found"), f"no such route: {request.url.path[:200]}")
    return problem_reply(problem, request_id(request.scope))


_HANDLERS = {Problem: on_problem, HTTPException: _on_http, Exception: on_fault}
