"""Providers, what they offer, and who rents it."""

from events.envelope import Event
from events.registry import event


@event("provider.registered")
class ProviderRegistered(Event, frozen=True):
    """A hotkey became a provider."""

    provider_id: str
    hotkey: str
    display_name: str | None = None

    def stream(self) -> str:
        return f"provider/{self.provider_id}"


@event("provider.named")
class ProviderNamed(Event, frozen=True):
    """A provider without a display name chose one."""

    provider_id: str
    display_name: str

    def stream(self) -> str:
        return f"provider/{self.provider_id}"


@event("offer.listed")
class OfferListed(Event, frozen=True):
    """A provider offers nodes at a price per hour for the whole offer, up to a lifetime."""

    offer_id: str
    provider_id: str
    node_ids: tuple[str, ...]
    mode: str  # single | cluster
    gpu_model: str
    gpu_count: int
    require_ib: bool
    tee: str
    price_micro_usd_h: int
    max_lifetime_us: int
    price_source: str = "explicit"
    location_hint: str | None = None
    metadata: str | None = None  # JSON text as given

    def stream(self) -> str:
        return f"offer/{self.offer_id}"


@event("offer.withdrawn")
class OfferWithdrawn(Event, frozen=True):
    """An offer can no longer be rented."""

    offer_id: str
    reason_code: str
    caused_by: int | None = None

    def stream(self) -> str:
        return f"offer/{self.offer_id}"


@event("lease.started")
class LeaseStarted(Event, frozen=True):
    """A renter won an offer; its nodes are the renter's until `ends_at_us`. There is exactly one winner."""

    lease_id: str
    pod_id: str
    offer_id: str
    renter: str
    provider_id: str
    provider: str  # the provider's hotkey
    node_ids: tuple[str, ...]
    mode: str
    price_micro_usd_h: int
    lifetime_us: int
    ends_at_us: int

    def stream(self) -> str:
        return f"lease/{self.lease_id}"


@event("lease.ended")
class LeaseEnded(Event, frozen=True):
    """A lease is over. `billable_us` excludes time that the host lost by its own fault; no money moves here."""

    lease_id: str
    status: str  # terminated | expired | failed
    reason_code: str
    billable_us: int
    amount_micro_usd: int
    caused_by: int | None = None
    reason: str | None = None  # commitment to free text

    def stream(self) -> str:
        return f"lease/{self.lease_id}"
