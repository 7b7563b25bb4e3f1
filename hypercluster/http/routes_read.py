"""The reading side: every GET route, its query parameters, and how it answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp

from hypercluster.http import queries
from hypercluster.http.auth import viewer_of
from hypercluster.http.event_query import FILTERS
from hypercluster.http.queries import Asked
from hypercluster.http.query import Query
from hypercluster.http.reading import Reader
from hypercluster.http.replies import json_reply
from hypercluster.http.shared import Shared
from hypercluster.http.views import Shown

type Answering = Callable[[Asked], Awaitable[Shown | ASGIApp]]

PAGING = ("after", "limit")


@dataclass(frozen=True, slots=True)
class ReadRoute:
    """A GET route. parameters: the query parameters it takes; all others are refused."""

    path: str
    answer: Answering
    parameters: tuple[str, ...] = ()


ROUTES: tuple[ReadRoute, ...] = (
    ReadRoute("/v1/providers", queries.providers, PAGING),
    ReadRoute("/v1/providers/me", queries.own_provider),
    ReadRoute("/v1/nodes", queries.nodes, ("status", *PAGING)),
    ReadRoute("/v1/nodes/{node_id}", queries.node),
    ReadRoute("/v1/offers", queries.offers, ("status", "gpu_model", "require_ib", "tee", "mode", *PAGING)),
    ReadRoute("/v1/offers/{offer_id}", queries.offer),
    ReadRoute("/v1/leases", queries.leases, ("offer_id", "status", *PAGING)),
    ReadRoute("/v1/leases/{lease_id}", queries.lease),
    ReadRoute("/v1/pods/{pod_id}", queries.pod),
    ReadRoute("/v1/jobs", queries.jobs, ("status", *PAGING)),
    ReadRoute("/v1/jobs/{job_id}", queries.job),
    ReadRoute("/v1/jobs/{job_id}/attempts", queries.attempts, PAGING),
    ReadRoute("/v1/jobs/{job_id}/attempts/{attempt_no}", queries.attempt),
    ReadRoute("/v1/jobs/{job_id}/attempts/{attempt_no}/logs", queries.logs, ("rank", "stream", "offset", "limit")),
    ReadRoute("/v1/scores/{hotkey}", queries.scores, PAGING),
    ReadRoute("/v1/leaderboard", queries.leaderboard, ("limit",)),
    ReadRoute("/v1/weight-preview", queries.weight_preview),
    ReadRoute("/v1/policy", queries.policy),
    ReadRoute("/v1/ssh-key", queries.ssh_key),
    ReadRoute("/v1/checkpoint", queries.checkpoint),
    ReadRoute("/v1/events", queries.events, (*FILTERS, "before", "since", "until", *PAGING)),
    ReadRoute("/v1/events/stream", queries.event_stream, (*FILTERS, "after")),
    ReadRoute("/v1/events/{number}", queries.event),
)


async def answer_read(shared: Shared, route: ReadRoute, request: Request) -> ASGIApp:
    """Answer a GET from the read models, once they hold every event that this server has answered."""
    service = shared.service
    query = Query(request.scope["query_string"], route.parameters)
    reader = Reader(service, viewer_of(service, request.scope))
    await service.read_at(shared.answered)
    seq = service.head()
    shown = await route.answer(Asked(shared, reader, request.path_params, query, request))
    if not isinstance(shown, dict):
        return shown
    return json_reply(shown, headers={"X-Ledger-Seq": str(seq)})
