"""Providers, offers, leases and pods."""

from collections.abc import Callable
from typing import Any

import msgspec

from events.envelope import Event, Recorded
from projections.state import Journal, Table


class Provider(msgspec.Struct, frozen=True):
    """status: active | suspended | banned."""

    provider_id: str
    hotkey: str
    status: str
    created_us: int
    updated_us: int
    display_name: str | None = None


class Offer(msgspec.Struct, frozen=True):
    """status: listed | leased | withdrawn. Price for the whole offer, per hour."""

    offer_id: str
    provider_id: str
    node_ids: tuple[str, ...]
    mode: str
    gpu_model: str
    gpu_count: int
    require_ib: bool
    tee: str
    price_micro_usd_h: int
    max_lifetime_us: int
    price_source: str
    status: str
    created_us: int
    updated_us: int
    location_hint: str | None = None
    metadata: str | None = None
    lease_id: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """status: active | expired | terminated | failed. The pod of a lease is `running` while it is active."""

    lease_id: str
    pod_id: str
    offer_id: str
    renter: str
    provider_id: str
    provider: str
    node_ids: tuple[str, ...]
    mode: str
    price_micro_usd_h: int
    lifetime_us: int
    started_us: int
    ends_at_us: int
    status: str
    updated_us: int
    started_pos: int
    reason_code: str | None = None
    reason: str | None = None
    billable_us: int | None = None
    amount_micro_usd: int | None = None


class MarketState:
    """by_hotkey: hotkey -> provider_id; lease_of_node: node_id -> active lease; listed_by_node: node_id -> offers."""

    def __init__(self, journal: Journal) -> None:
        self.providers: Table[str, Provider] = Table("provider", journal, mirrored=True)
        self.offers: Table[str, Offer] = Table("offer", journal, mirrored=True)
        self.leases: Table[str, Lease] = Table("lease", journal, mirrored=True)
        self.lease_of_pod: Table[str, str] = Table("lease_of_pod", journal)
        self.by_hotkey: Table[str, str] = Table("provider_by_hotkey", journal)
        self.lease_of_node: Table[str, str] = Table("lease_of_node", journal)
        self.listed_by_node: Table[str, tuple[str, ...]] = Table("listed_by_node", journal)


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {}
