"""What providers and renters ask of the market."""

from typing import Annotated

from pydantic import Field

from hypercluster.domain.kernel import Body, NoBody
from hypercluster.domain.prices import Number
from hypercluster.domain.route import Route

NODES_PER_OFFER_MAX = 64

type RequestId = Annotated[str, Field(max_length=128)]
type NodeIds = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=NODES_PER_OFFER_MAX)]


class RegisterProvider(Body):
    """A hotkey becomes a provider."""

    display_name: Annotated[str, Field(max_length=256)] | None = None
    client_request_id: RequestId | None = None


class CreateOffer(Body):
    """Nodes for rent. price_per_hour: USD for the whole offer, at most six decimals."""

    node_ids: NodeIds
    price_per_hour: Number | None = None
    max_lifetime_hours: Number | None = None
    mode: Annotated[str, Field(max_length=16)] = "single"
    require_ib: bool = False
    tee: Annotated[str, Field(max_length=32)] | None = None
    gpu_model: Annotated[str, Field(max_length=128)] | None = None
    gpu_count: Annotated[int, Field(ge=1)] | None = None
    location_hint: Annotated[str, Field(max_length=128)] | None = None
    metadata: dict[str, object] | None = None
    client_request_id: RequestId | None = None


class RentOffer(Body):
    """Rent an offer, at no more than max_price USD per hour, for lifetime_hours or as long as the offer allows."""

    lifetime_hours: Number | None = None
    max_price: Number | None = None
    client_request_id: RequestId | None = None


class TerminateLease(Body):
    """End a lease. `reason` is private: here it is a commitment."""

    reason: Annotated[str, Field(max_length=256)] | None = None


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/providers/register", "provider.register", RegisterProvider),
    Route("POST", "/v1/providers/heartbeat", "provider.heartbeat", NoBody, body_required=False),
    Route("POST", "/v1/offers", "offer.create", CreateOffer),
    Route("DELETE", "/v1/offers/{offer_id}", "offer.withdraw", NoBody, body_required=False),
    Route("POST", "/v1/offers/{offer_id}/rent", "offer.rent", RentOffer, body_required=False),
    Route(
        "POST",
        "/v1/leases/{lease_id}/terminate",
        "lease.terminate",
        TerminateLease,
        private=("reason",),
        body_required=False,
    ),
)
