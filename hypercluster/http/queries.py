"""How each GET route is answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from hypercluster.domain.identity.signed_text import read_headers
from hypercluster.domain.kernel import Refused
from hypercluster.domain.weights.preview import leaderboard_rows
from hypercluster.http import event_query
from hypercluster.http.errors import Problem, problem_of
from hypercluster.http.query import LIMIT_MAX, Query, path_id, path_number
from hypercluster.http.reading import Reader, merged, page
from hypercluster.http.shared import Shared
from hypercluster.http.stream import EventStream
from hypercluster.http.views import Shown
from hypercluster.http.views.events import event_detail, event_view
from hypercluster.http.views.jobs import log_headers, log_of
from hypercluster.http.views.market import offer_view, provider_view
from hypercluster.http.views.meta import policy_view
from hypercluster.http.views.scores import leaderboard_view, preview_view, score_view
from projections.folds.jobs import Job
from projections.folds.market import Lease
from projections.folds.nodes import Node

LOG_BYTES_MAX = 1024 * 1024
EVERY_STATUS = ("", "all", "*")

type Where = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Asked:
    """One read: who asks (`reader`), the values of the path, the query, and the request for what remains."""

    shared: Shared
    reader: Reader
    path: Mapping[str, str]
    query: Query
    request: Request

    def id(self, name: str) -> str:
        """An id from the path."""
        return path_id(self.path[name], name)

    def signer(self) -> str:
        """The verified hotkey.

        Raises: Problem (missing_auth_headers)
        """
        hotkey = self.reader.viewer.hotkey
        if hotkey is None:
            found = read_headers(self.request.scope["headers"])
            raise problem_of(found) if isinstance(found, Refused) else Problem("missing_auth_headers", "sign this")
        return hotkey

    def scope(self) -> str | None:
        """The hotkey that a list is cut down to: the verified one, or in the sim profile the one that is claimed."""
        viewer = self.reader.viewer
        return viewer.hotkey or (viewer.claimed if self.shared.service.profile == "sim" else None)


async def providers(asked: Asked) -> Shown:
    """Providers, or with a hotkey header only that hotkey's."""
    viewer = asked.reader.viewer
    hotkey = viewer.hotkey or viewer.claimed
    where: Where = {"hotkey": hotkey} if hotkey else {}
    limit = asked.query.limit()
    rows = asked.shared.service.view.find("provider", where, after=asked.query.after(), limit=limit + 1)
    return page(rows, limit, provider_view)


async def own_provider(asked: Asked) -> Shown:
    """The signer's provider."""
    return asked.reader.provider(asked.reader.provider_of(asked.signer()))


async def nodes(asked: Asked) -> Shown:
    """Nodes, or with a hotkey header only those of that hotkey's provider."""
    viewer, view = asked.reader.viewer, asked.shared.service.view
    hotkey = viewer.hotkey or viewer.claimed
    where: Where = {}
    if hotkey:
        found = view.find("provider", {"hotkey": hotkey}, limit=1)
        if not found:
            return {"items": [], "next": None}
        where["provider_id"] = found[0].record.provider_id
    status = asked.query.text("status")
    if status is not None and status not in EVERY_STATUS:
        where["status"] = status.lower()
    limit = asked.query.limit()
    return page(view.find("node", where, after=asked.query.after(), limit=limit + 1), limit, asked.reader.node)


async def node(asked: Asked) -> Shown:
    """One node."""
    return asked.reader.node(asked.reader.found("node", asked.id("node_id"), Node))


async def offers(asked: Asked) -> Shown:
    """Offers, those that can be rented unless another status is asked for."""
    query = asked.query
    where: Where = {}
    status = query.text("status")
    if status is None or status.lower() not in EVERY_STATUS:
        where["status"] = "listed" if status is None else status.lower()
    for name in ("gpu_model", "tee", "mode"):
        value = query.text(name)
        if value is not None:
            where[name] = value.lower() if name == "mode" else value
    require_ib = query.flag("require_ib")
    if require_ib is not None:
        where["require_ib"] = int(require_ib)
    limit = query.limit()
    return page(asked.shared.service.view.find("offer", where, after=query.after(), limit=limit + 1), limit, offer_view)


async def offer(asked: Asked) -> Shown:
    """One offer."""
    return offer_view(asked.reader.offer(asked.id("offer_id")))


async def leases(asked: Asked) -> Shown:
    """The signer's leases, as renter and as provider; nothing without a signature."""
    hotkey, query = asked.scope(), asked.query
    after, limit = query.after(), query.limit()
    where: Where = {}
    for name in ("offer_id", "status"):
        value = query.text(name)
        if value is not None:
            where[name] = value
    if hotkey is None:
        return {"items": [], "next": None}
    wheres = [where | {"renter": hotkey}, where | {"provider": hotkey}]
    return page(merged(asked.reader, "lease", wheres, after, limit), limit, asked.reader.lease)


async def lease(asked: Asked) -> Shown:
    """One lease."""
    return asked.reader.lease(asked.reader.found("lease", asked.id("lease_id"), Lease))


async def pod(asked: Asked) -> Shown:
    """The pod of a lease."""
    pod_id = asked.id("pod_id")
    rows = asked.shared.service.view.find("lease", {"pod_id": pod_id}, limit=1)
    if not rows:
        raise Problem("pod_not_found", f"there is no pod {pod_id}")
    return asked.reader.pod(cast(Lease, rows[0].record))


async def jobs(asked: Asked) -> Shown:
    """The signer's jobs; nothing without a signature."""
    hotkey, query = asked.scope(), asked.query
    after, limit, status = query.after(), query.limit(), (query.text("status") or "").strip().lower()
    if hotkey is None:
        return {"items": [], "next": None}
    where: Where = {"submitter": hotkey}
    if status:
        where["status"] = status
    rows = asked.shared.service.view.find("job", where, after=after, limit=limit + 1)
    return page(rows, limit, asked.reader.job)


async def job(asked: Asked) -> Shown:
    """One job; its environment only to its submitter."""
    return asked.reader.job_detail(asked.reader.found("job", asked.id("job_id"), Job))


async def attempts(asked: Asked) -> Shown:
    """The attempts of a job."""
    found = asked.reader.found("job", asked.id("job_id"), Job)
    limit = asked.query.limit()
    where: Where = {"job_id": found.job_id}
    rows = asked.shared.service.view.find("attempt", where, after=asked.query.after(), limit=limit + 1)
    return page(rows, limit, lambda record: asked.reader.attempt(found, record))


async def attempt(asked: Asked) -> Shown:
    """One attempt."""
    number = path_number(asked.path["attempt_no"], "attempt_no")
    return asked.reader.attempt(*asked.reader.job_and_attempt(asked.id("job_id"), number))


async def logs(asked: Asked) -> Response:
    """The exact bytes of a piece of one rank's output; to the submitter only. After the end: no bytes."""
    query, hotkey = asked.query, asked.signer()
    number = path_number(asked.path["attempt_no"], "attempt_no")
    rank, offset = query.number("rank", 0), query.number("offset", 0)
    limit = query.number("limit", LOG_BYTES_MAX, low=1, high=LOG_BYTES_MAX)
    stream = query.text("stream") or "stdout"
    if stream not in ("stdout", "stderr"):
        raise Problem("invalid_query", "stream must be stdout or stderr", field="stream")
    found, tried = asked.reader.job_and_attempt(asked.id("job_id"), number)
    if found.submitter != hotkey:
        raise Problem("forbidden", "only the submitter reads the logs of a job")
    missing = Problem("log_not_found", f"there is no {stream} of rank {rank} in attempt {number}")
    result = next((one for one in tried.ranks if one.rank == rank), None)
    if result is None:
        raise missing
    digest, written = log_of(result, stream)
    content = b"" if digest is None and written == 0 else None
    if digest is not None:
        content = await asked.shared.service.blob(digest)
    if content is None:
        raise missing
    headers = log_headers(len(content), written, result.truncated)
    return Response(content[offset : offset + limit], headers=headers, media_type="application/octet-stream")


async def scores(asked: Asked) -> Shown:
    """Scores that concern a hotkey as submitter, newest first."""
    hotkey, limit = asked.id("hotkey"), asked.query.limit()
    where: Where = {"submitter": hotkey}
    found = asked.shared.service.view.find(
        "score", where, after=asked.query.after(), limit=limit + 1, newest_first=True
    )
    shown = page(found, limit, lambda record: score_view(record, "demand", hotkey))
    return {"hotkey": hotkey, "count": len(cast("list[object]", shown["items"]))} | shown


async def leaderboard(asked: Asked) -> Shown:
    """Hotkeys by mass."""
    limit = asked.query.number("limit", 100, low=1, high=2 * LIMIT_MAX)
    rows = [leaderboard_view(row) for row in leaderboard_rows(asked.reader.standings())[:limit]]
    return {"items": rows, "count": len(rows), "empty": not rows}


async def weight_preview(asked: Asked) -> Shown:
    """The newest snapshot, beside the masses of now."""
    service = asked.shared.service
    return preview_view(service.snapshot(), asked.reader.standings(), service.now_us())


async def policy(asked: Asked) -> Shown:
    """The policy in force."""
    return policy_view(asked.shared.service.policies(), asked.shared.service.now_us())


async def ssh_key(asked: Asked) -> Shown:
    """The public key with which the challenge logs in on nodes."""
    return {"ssh_public_key": asked.shared.service.ssh_public_key}


async def checkpoint(asked: Asked) -> Response:
    """The newest signed checkpoint, a C2SP note."""
    return PlainTextResponse(asked.shared.service.checkpoint(), headers={"Cache-Control": "no-store"})


async def events(asked: Asked) -> Shown:
    """Committed events by filter."""
    query = asked.query
    wanted = event_query.filter_of(query)
    span = event_query.Span(query.after(), query.optional_number("before"), query.time("since"), query.time("until"))
    found, following = event_query.find_events(asked.shared.service, wanted, span, query.limit())
    return {"items": [event_view(recorded) for recorded in found], "next": following}


async def event(asked: Asked) -> Shown:
    """One event with its exact leaf."""
    number = path_number(asked.path["number"], "number")
    found = asked.shared.service.events([number]) if number <= asked.shared.service.head() else []
    if not found:
        raise Problem("event_not_found", f"the ledger holds no event {number}")
    return event_detail(found[0])


async def event_stream(asked: Asked) -> ASGIApp:
    """Committed events as they come. `Last-Event-ID` wins over `after`; with neither it begins now."""
    head = asked.shared.service.head()
    after = asked.query.number("after", head)
    resumed = asked.request.headers.get("last-event-id")
    if resumed:
        after = path_number(resumed, "Last-Event-ID")
    if after > head:
        raise Problem("invalid_query", f"the ledger ends with event {head}", field="after")
    return EventStream(asked.shared, event_query.filter_of(asked.query), after)
