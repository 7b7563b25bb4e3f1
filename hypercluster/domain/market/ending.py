"""How offers and leases end, whoever ends them, with everything that ends with them."""

from collections.abc import Collection
from dataclasses import dataclass

from events.envelope import Event
from events.types.market import LeaseEnded, OfferWithdrawn
from events.types.nodes import NodeFacts, NodeOffline
from hypercluster.domain.jobs.closing import end_jobs_of_lease
from hypercluster.domain.kernel import US_PER_H
from hypercluster.domain.market.supply import nodes_of, why_it_exceeds
from hypercluster.domain.nodes.liveness import is_gone, silence_limit_us
from projections.fold import State
from projections.folds.market import Lease, add_span

MAX_LIFETIME = "max_lifetime"
NODE_FACTS_CHANGED = "node_facts_changed"
NO_HEARTBEAT = "no_heartbeat"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a lease ends.

    status: terminated | expired | failed. fault: none | provider. caused_by: event number. reason: commitment.
    lost_from_us: with fault provider, since when the host had failed; without it, since its nodes were last seen.
    """

    status: str
    reason_code: str
    fault: str = "none"
    caused_by: int | None = None
    reason: str | None = None
    lost_from_us: int | None = None


def end_lease(
    state: State,
    lease: Lease,
    at_us: int,
    *,
    status: str,
    reason_code: str,
    fault: str = "none",
    caused_by: int | None = None,
) -> tuple[Event, ...]:
    """`close_lease`, spelled out."""
    return close_lease(state, lease, at_us, Ending(status, reason_code, fault, caused_by))


def expire_lease(state: State, lease: Lease, at_us: int) -> tuple[Event, ...]:
    """The end of a lease that has reached its hard lifetime."""
    return close_lease(state, lease, at_us, Ending("expired", MAX_LIFETIME, caused_by=lease.started_pos))


def close_lease(state: State, lease: Lease, at_us: int, ending: Ending) -> tuple[Event, ...]:
    """lease.ended with what is billed, node.offline for its nodes that are gone, and the end of its live jobs.

    The lease must not have ended. The amount is price * billable time, rounded down to a micro-USD.
    """
    billable_us = _billable_us(state, lease, at_us, ending)
    ended = LeaseEnded(
        lease_id=lease.lease_id,
        status=ending.status,
        reason_code=ending.reason_code,
        billable_us=billable_us,
        amount_micro_usd=lease.price_micro_usd_h * billable_us // US_PER_H,
        caused_by=ending.caused_by,
        reason=ending.reason,
    )
    jobs = end_jobs_of_lease(state, lease.lease_id, caused_by=ending.caused_by)
    return (ended, *_gone_nodes(state, lease, at_us), *jobs)


def _billable_us(state: State, lease: Lease, at_us: int, ending: Ending) -> int:
    """From the start to the end or the hard lifetime, less the time that the host lost by its own fault.

    Lost are the spans of attempts that failed by the host's fault and, where its fault ends the lease, all time since
    every node of it was last seen.
    """
    until_us = min(at_us, lease.ends_at_us)
    lost = state.market.lost.get(lease.lease_id, ())
    if ending.fault == "provider":
        seen_us = min(state.nodes.nodes[node_id].last_seen_us for node_id in lease.node_ids)
        from_us = seen_us if ending.lost_from_us is None else ending.lost_from_us
        lost = add_span(lost, min(from_us, at_us), at_us)
    lost_us = sum(max(0, min(end, until_us) - start) for start, end in lost)
    return max(0, until_us - lease.started_us - lost_us)


def _gone_nodes(state: State, lease: Lease, at_us: int) -> tuple[Event, ...]:
    """The lease protected these nodes from being reclaimed; without it they are not offered any more."""
    policy = state.policy.policy_at(at_us).policy
    nodes = (state.nodes.nodes[node_id] for node_id in lease.node_ids)
    return tuple(
        NodeOffline(node_id=node.node_id, reason_code=NO_HEARTBEAT, last_seen_us=node.last_seen_us)
        for node in nodes
        if node.status == "rented" and is_gone(node, at_us, silence_limit_us(policy))
    )


def withdraw_offers_of(
    state: State,
    *,
    reason_code: str,
    provider_id: str | None = None,
    node_ids: Collection[str] = (),
    caused_by: int | None = None,
) -> tuple[Event, ...]:
    """offer.withdrawn for each listed offer of the provider, or that names one of the nodes, once each."""
    wanted = nodes_of(state, provider_id) if provider_id is not None else tuple(node_ids)
    listed = {offer_id: None for node_id in wanted for offer_id in state.market.listed_by_node.get(node_id, ())}
    return tuple(OfferWithdrawn(offer_id=one, reason_code=reason_code, caused_by=caused_by) for one in listed)


def withdraw_misfits(state: State, node_id: str, facts: NodeFacts) -> tuple[Event, ...]:
    """offer.withdrawn for each listed offer that claims more than its nodes once this node has these facts."""
    withdrawn: list[Event] = []
    for offer_id in state.market.listed_by_node.get(node_id, ()):
        offer = state.market.offers[offer_id]
        all_facts = [facts if one == node_id else state.nodes.nodes[one].facts for one in offer.node_ids]
        lost_ib = offer.require_ib and not all(one.has_ib for one in all_facts)
        if lost_ib or why_it_exceeds(all_facts, offer.gpu_model, offer.gpu_count, offer.tee) is not None:
            withdrawn.append(OfferWithdrawn(offer_id=offer_id, reason_code=NODE_FACTS_CHANGED))
    return tuple(withdrawn)
