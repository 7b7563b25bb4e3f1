"""Providers, offers, leases and pods."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from events.envelope import Event, Recorded
from events.types.jobs import AttemptEnded, AttemptPlaced
from events.types.market import (
    LeaseEnded,
    LeaseStarted,
    OfferListed,
    OfferWithdrawn,
    ProviderNamed,
    ProviderRegistered,
)
from events.types.policy import ProviderReadmitted, ProviderSuspended
from projections.state import Journal, Table


class Provider(msgspec.Struct, frozen=True):
    """status: active | suspended | banned. last_pos: the event that changed it last."""

    provider_id: str
    hotkey: str
    status: str
    created_us: int
    updated_us: int
    display_name: str | None = None
    last_pos: int = 0


class Offer(msgspec.Struct, frozen=True):
    """status: listed | leased | withdrawn. Price for the whole offer, per hour. `lease_id`: its lease, over or not."""

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
    last_pos: int = 0


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
    last_pos: int = 0


class MarketState:
    """by_hotkey: hotkey -> provider_id; lease_of_node: node_id -> active lease; listed_by_node: node_id -> offers.

    running: job_id -> (lease_id, start in us) of its attempt; lost: lease_id -> spans (start, end in us, disjoint, in
    order) of attempts on it that failed by the host's fault.
    """

    def __init__(self, journal: Journal) -> None:
        self.providers: Table[str, Provider] = Table("provider", journal, mirrored=True)
        self.offers: Table[str, Offer] = Table("offer", journal, mirrored=True)
        self.leases: Table[str, Lease] = Table("lease", journal, mirrored=True)
        self.lease_of_pod: Table[str, str] = Table("lease_of_pod", journal)
        self.by_hotkey: Table[str, str] = Table("provider_by_hotkey", journal)
        self.lease_of_node: Table[str, str] = Table("lease_of_node", journal)
        self.listed_by_node: Table[str, tuple[str, ...]] = Table("listed_by_node", journal)
        self.running: Table[str, tuple[str, int]] = Table("running_on_lease", journal)
        self.lost: Table[str, tuple[tuple[int, int], ...]] = Table("lost_by_lease", journal)


def _provider_registered(state: MarketState, recorded: Recorded) -> None:
    event, at_us = cast(ProviderRegistered, recorded.event), recorded.at_us
    state.providers[event.provider_id] = Provider(
        event.provider_id, event.hotkey, "active", at_us, at_us, event.display_name, recorded.pos
    )
    state.by_hotkey[event.hotkey] = event.provider_id


def _provider_named(state: MarketState, recorded: Recorded) -> None:
    event = cast(ProviderNamed, recorded.event)
    state.providers[event.provider_id] = replace(
        state.providers[event.provider_id],
        display_name=event.display_name,
        updated_us=recorded.at_us,
        last_pos=recorded.pos,
    )


def _provider_suspended(state: MarketState, recorded: Recorded) -> None:
    event = cast(ProviderSuspended, recorded.event)
    _set_provider(state, recorded, event.provider_id, event.status)


def _provider_readmitted(state: MarketState, recorded: Recorded) -> None:
    _set_provider(state, recorded, cast(ProviderReadmitted, recorded.event).provider_id, "active")


def _set_provider(state: MarketState, recorded: Recorded, provider_id: str, status: str) -> None:
    state.providers[provider_id] = replace(
        state.providers[provider_id], status=status, updated_us=recorded.at_us, last_pos=recorded.pos
    )


def _offer_listed(state: MarketState, recorded: Recorded) -> None:
    event, at_us = cast(OfferListed, recorded.event), recorded.at_us
    state.offers[event.offer_id] = Offer(
        offer_id=event.offer_id,
        provider_id=event.provider_id,
        node_ids=event.node_ids,
        mode=event.mode,
        gpu_model=event.gpu_model,
        gpu_count=event.gpu_count,
        require_ib=event.require_ib,
        tee=event.tee,
        price_micro_usd_h=event.price_micro_usd_h,
        max_lifetime_us=event.max_lifetime_us,
        price_source=event.price_source,
        status="listed",
        created_us=at_us,
        updated_us=at_us,
        location_hint=event.location_hint,
        metadata=event.metadata,
        last_pos=recorded.pos,
    )
    for node_id in event.node_ids:
        state.listed_by_node[node_id] = (*state.listed_by_node.get(node_id, ()), event.offer_id)


def _offer_withdrawn(state: MarketState, recorded: Recorded) -> None:
    event = cast(OfferWithdrawn, recorded.event)
    offer = state.offers[event.offer_id]
    if offer.status == "listed":
        _delist(state, offer)
    state.offers[event.offer_id] = replace(offer, status="withdrawn", updated_us=recorded.at_us, last_pos=recorded.pos)


def _delist(state: MarketState, offer: Offer) -> None:
    for node_id in offer.node_ids:
        left = tuple(other for other in state.listed_by_node.get(node_id, ()) if other != offer.offer_id)
        if left:
            state.listed_by_node[node_id] = left
        else:
            state.listed_by_node.drop(node_id)


def _lease_started(state: MarketState, recorded: Recorded) -> None:
    event, at_us = cast(LeaseStarted, recorded.event), recorded.at_us
    offer = state.offers[event.offer_id]
    _delist(state, offer)
    state.offers[event.offer_id] = replace(
        offer, status="leased", lease_id=event.lease_id, updated_us=at_us, last_pos=recorded.pos
    )
    state.leases[event.lease_id] = Lease(
        lease_id=event.lease_id,
        pod_id=event.pod_id,
        offer_id=event.offer_id,
        renter=event.renter,
        provider_id=event.provider_id,
        provider=event.provider,
        node_ids=event.node_ids,
        mode=event.mode,
        price_micro_usd_h=event.price_micro_usd_h,
        lifetime_us=event.lifetime_us,
        started_us=at_us,
        ends_at_us=event.ends_at_us,
        status="active",
        updated_us=at_us,
        started_pos=recorded.pos,
        last_pos=recorded.pos,
    )
    state.lease_of_pod[event.pod_id] = event.lease_id
    for node_id in event.node_ids:
        if node_id in state.lease_of_node:
            raise ValueError(f"node {node_id} would be under two leases")
        state.lease_of_node[node_id] = event.lease_id


def _lease_ended(state: MarketState, recorded: Recorded) -> None:
    event = cast(LeaseEnded, recorded.event)
    lease = state.leases[event.lease_id]
    if lease.status != "active":
        raise ValueError(f"lease {event.lease_id} has ended before")
    state.leases[event.lease_id] = replace(
        lease,
        status=event.status,
        reason_code=event.reason_code,
        reason=event.reason,
        billable_us=event.billable_us,
        amount_micro_usd=event.amount_micro_usd,
        updated_us=recorded.at_us,
        last_pos=recorded.pos,
    )
    state.lost.drop(event.lease_id)
    for node_id in lease.node_ids:
        del state.lease_of_node[node_id]


def _attempt_placed(state: MarketState, recorded: Recorded) -> None:
    event = cast(AttemptPlaced, recorded.event)
    if event.lease_id is not None:
        state.running[event.job_id] = (event.lease_id, recorded.at_us)


def _attempt_ended(state: MarketState, recorded: Recorded) -> None:
    event = cast(AttemptEnded, recorded.event)
    run = state.running.get(event.job_id)
    if run is None:
        return
    del state.running[event.job_id]
    lease_id, start_us = run
    if event.fault == "provider" and state.leases[lease_id].status == "active":
        state.lost[lease_id] = add_span(state.lost.get(lease_id, ()), start_us, recorded.at_us)


def add_span(spans: tuple[tuple[int, int], ...], start_us: int, end_us: int) -> tuple[tuple[int, int], ...]:
    """The spans with one more, which ends no earlier than the last. Disjoint and in order, before and after."""
    kept = len(spans)
    while kept and spans[kept - 1][1] >= start_us:
        kept -= 1
        start_us = min(start_us, spans[kept][0])
    return (*spans[:kept], (start_us, end_us))


STEPS: dict[type[Event], Callable[[Any, Recorded], None]] = {
    ProviderRegistered: _provider_registered,
    ProviderNamed: _provider_named,
    ProviderSuspended: _provider_suspended,
    ProviderReadmitted: _provider_readmitted,
    OfferListed: _offer_listed,
    OfferWithdrawn: _offer_withdrawn,
    LeaseStarted: _lease_started,
    LeaseEnded: _lease_ended,
    AttemptPlaced: _attempt_placed,
    AttemptEnded: _attempt_ended,
}
