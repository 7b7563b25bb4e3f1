"""Providers, offers, leases and pods on the wire."""

from collections.abc import Iterable

from hypercluster.http import wire
from hypercluster.http.replies import raw_json
from hypercluster.http.views import Reveal, Shown
from projections.folds.market import Lease, Offer, Provider
from projections.folds.nodes import Node


def provider_view(provider: Provider, last_seen_us: int | None = None) -> Shown:
    """Provider. last_seen_us: the newest sign of life of its nodes, where it was looked up."""
    return {
        "id": provider.provider_id,
        "hotkey": provider.hotkey,
        "display_name": provider.display_name,
        "status": provider.status,
        "last_seen_at": wire.optional_time(last_seen_us),
        "created_at": wire.time_text(provider.created_us),
        "updated_at": wire.time_text(provider.updated_us),
    }


def offer_view(offer: Offer) -> Shown:
    """Offer."""
    return {
        "id": offer.offer_id,
        "provider_id": offer.provider_id,
        "node_ids": offer.node_ids,
        "mode": offer.mode,
        "gpu_model": offer.gpu_model,
        "gpu_count": offer.gpu_count,
        "node_count": len(offer.node_ids),
        "require_ib": offer.require_ib,
        "tee": offer.tee,
        "price_per_hour": wire.usd_per_hour(offer.price_micro_usd_h),
        "max_lifetime_hours": wire.hours(offer.max_lifetime_us),
        "location_hint": offer.location_hint,
        "status": offer.status,
        "metadata": raw_json(offer.metadata),
        "price_source": offer.price_source,
        "created_at": wire.time_text(offer.created_us),
        "updated_at": wire.time_text(offer.updated_us),
    }


def lease_view(lease: Lease, reveal: Reveal) -> Shown:
    """Lease. reveal: shows the free text of its end to the two parties."""
    ended = lease.status != "active"
    return {
        "id": lease.lease_id,
        "offer_id": lease.offer_id,
        "pod_id": lease.pod_id,
        "renter_hotkey": lease.renter,
        "provider_id": lease.provider_id,
        "provider_hotkey": lease.provider,
        "node_ids": lease.node_ids,
        "status": lease.status,
        "started_at": wire.time_text(lease.started_us),
        "ends_at": wire.time_text(lease.ends_at_us),
        "price_per_hour": wire.usd_per_hour(lease.price_micro_usd_h),
        "lifetime_hours": wire.hours(lease.lifetime_us),
        "reason_code": lease.reason_code,
        "termination_reason": (reveal(lease.reason) or lease.reason_code) if ended else None,
        "billable_hours": None if lease.billable_us is None else wire.hours(lease.billable_us),
        "amount_usd": None if lease.amount_micro_usd is None else wire.usd(lease.amount_micro_usd),
        "created_at": wire.time_text(lease.started_us),
        "updated_at": wire.time_text(lease.updated_us),
    }


def pod_view(lease: Lease, nodes: Iterable[Node], reveal: Reveal) -> Shown:
    """Pod of a lease. reveal: shows the nodes' addresses to the parties of a running lease."""
    running = lease.status == "active"
    return {
        "id": lease.pod_id,
        "lease_id": lease.lease_id,
        "mode": lease.mode,
        "status": "running" if running else "stopped",
        "node_ids": lease.node_ids,
        "image_digest": None,
        "ssh_authorized": None,
        "endpoints": {node.node_id: _endpoint(node, reveal) for node in nodes},
        "created_at": wire.time_text(lease.started_us),
        "updated_at": wire.time_text(lease.updated_us),
    }


def _endpoint(node: Node, reveal: Reveal) -> Shown:
    return {
        "ssh": reveal(node.facts.ssh_endpoint),
        "ssh_user": node.facts.ssh_user,
        "ssh_host_key": node.facts.ssh_host_key,
        "hostname": reveal(node.facts.hostname),
        "gpu_model": node.facts.gpu_model,
        "gpu_count": node.facts.gpu_count,
    }
