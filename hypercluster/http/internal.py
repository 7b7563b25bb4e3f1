"""What only Base may ask, with the shared token. Errors keep Base's own shape, a plain text under `detail`."""

import hmac

from starlette.requests import Request
from starlette.responses import Response

from hypercluster.http.ports import Service
from hypercluster.http.replies import json_reply
from hypercluster.http.shared import Shared
from hypercluster.http.views.scores import get_weights_view


async def get_weights(shared: Shared, request: Request) -> Response:
    """The newest stored snapshot. Computes nothing, so that nothing can fail."""
    service = shared.service
    refusal = _refusal(service, request)
    if refusal is not None:
        return refusal
    return json_reply(get_weights_view(service.slug, service.snapshot(), service.now_us()))


async def work_units(shared: Shared, request: Request) -> Response:
    """Base asks for work to hand out; this challenge hands out its own."""
    return _refusal(shared.service, request) or json_reply({"work_units": []})


def _refusal(service: Service, request: Request) -> Response | None:
    token = service.settings.shared_token
    if not token:
        return json_reply({"detail": "Internal challenge token is not configured"}, 503)
    if not _is_single(request, b"authorization", f"Bearer {token}".encode()):
        return json_reply({"detail": "Invalid internal authorization"}, 401)
    if not _is_single(request, b"x-base-challenge-slug", service.slug.encode()):
        return json_reply({"detail": "Invalid challenge slug header"}, 400)
    return None


def _is_single(request: Request, name: bytes, expected: bytes) -> bool:
    """Whether the header came once, with exactly these bytes. Compared as bytes: a header may hold any of them."""
    values = [value for key, value in request.scope["headers"] if key == name]
    return len(values) == 1 and hmac.compare_digest(values[0], expected)
