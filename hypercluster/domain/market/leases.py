"""Who rents what, at which price and until when. A rent has exactly one winner."""

from typing import cast

from events.types.market import LeaseStarted
from events.types.policy import Policy
from hypercluster.domain.kernel import US_PER_H, Accepted, Command, Context, Decision, Ids, Refused
from hypercluster.domain.market.commands import RentOffer, TerminateLease
from hypercluster.domain.market.ending import Ending, close_lease, expire_lease
from hypercluster.domain.market.internal import ExpireLease
from hypercluster.domain.market.supply import active_lease, leases_on, why_not_offerable
from hypercluster.domain.prices import floor, micro_usd
from projections.fold import State
from projections.folds.market import Lease, Offer

RENTER_CANCEL = "renter_cancel"
PROVIDER_CANCEL = "provider_cancel"


def rent(state: State, command: Command, context: Context) -> Decision:
    """Rent an offer. A lease on its nodes whose time is over ends first, in the same append."""
    body, offer_id = cast(RentOffer, command.body), command.path["offer_id"]
    refused = _check_body(body)
    if refused is not None:
        return refused
    offer = state.market.offers.get(offer_id)
    if offer is None:
        return Refused("offer_not_found", f"there is no offer {offer_id}")
    if offer.status != "listed":
        hint = "a leased offer is not listed again: ask the provider for a new one"
        return Refused("offer_not_listed", f"the offer is {offer.status}", hint=hint)
    provider = state.market.providers[offer.provider_id]
    if provider.status != "active":
        return Refused("provider_not_active", f"the offer's provider is {provider.status}")
    lifetime_us = _agree(offer, body, state.policy.policy_at(context.at_us).policy)
    if isinstance(lifetime_us, Refused):
        return lifetime_us
    refused = _check_nodes(state, offer, context.at_us)
    if refused is not None:
        return refused
    overdue = leases_on(state, offer.node_ids)
    ended = tuple(event for lease in overdue for event in expire_lease(state, lease, context.at_us))
    ids = Ids(state.ledger.info["ledger"].seed, command)
    started = LeaseStarted(
        lease_id=ids.new("lease"),
        pod_id=ids.new("pod"),
        offer_id=offer_id,
        renter=command.actor,
        provider_id=offer.provider_id,
        provider=provider.hotkey,
        node_ids=offer.node_ids,
        mode=offer.mode,
        price_micro_usd_h=offer.price_micro_usd_h,
        lifetime_us=lifetime_us,
        ends_at_us=context.at_us + lifetime_us,
    )
    return Accepted((*ended, started), started.lease_id, created=True)


def _check_body(body: RentOffer) -> Refused | None:
    if body.max_price is not None and (micro_usd(body.max_price) or 0) <= 0:
        return Refused("invalid_max_price", "not above zero, or more than six decimals", field="max_price")
    if body.lifetime_hours is not None and floor(body.lifetime_hours, US_PER_H) <= 0:
        return Refused("invalid_lifetime_hours", "lifetime_hours is not above zero", field="lifetime_hours")
    return None


def _agree(offer: Offer, body: RentOffer, policy: Policy) -> int | Refused:
    """The lifetime in microseconds, rounded down, where renter, offer and policy agree on it and on the price."""
    price = offer.price_micro_usd_h
    if body.max_price is not None and price > (micro_usd(body.max_price) or 0):
        return Refused("price_over_renter_max", f"the offer costs {price} micro-USD per hour", field="max_price")
    field = "lifetime_hours"
    lifetime_us = offer.max_lifetime_us if body.lifetime_hours is None else floor(body.lifetime_hours, US_PER_H)
    if lifetime_us > offer.max_lifetime_us:
        return Refused("lifetime_over_offer_max", f"the offer lasts {offer.max_lifetime_us} us at most", field=field)
    if lifetime_us > policy.lifetime_cap_h * US_PER_H:
        return Refused("lifetime_over_cap", f"a lease lasts at most {policy.lifetime_cap_h} hours", field=field)
    if price > policy.price_cap_micro_usd_h:
        return Refused("price_over_cap", f"at most {policy.price_cap_micro_usd_h} micro-USD per hour")
    return lifetime_us


def _check_nodes(state: State, offer: Offer, at_us: int) -> Refused | None:
    nodes = [state.nodes.nodes[node_id] for node_id in offer.node_ids]
    for node in nodes:
        why_not = why_not_offerable(state, node, at_us)
        if why_not is not None:
            return Refused("node_not_offerable", why_not)
    if offer.require_ib and not all(node.facts.has_ib for node in nodes):
        return Refused("require_ib_not_satisfied", "a node of the offer has no InfiniBand any more")
    for node in nodes:
        if active_lease(state, node.node_id, at_us) is not None:
            return Refused("capacity_unavailable", f"node {node.node_id} is under another lease")
    return None


def terminate(state: State, command: Command, context: Context) -> Decision:
    """Renter or provider end a lease. Past its hard lifetime it has expired, whoever asks."""
    lease = state.market.leases.get(command.path["lease_id"])
    if lease is None:
        return Refused("lease_not_found", f"there is no lease {command.path['lease_id']}")
    if command.actor not in (lease.renter, lease.provider):
        return Refused("lease_not_owned", "only its renter and its provider may end a lease")
    if lease.status != "active":
        return _ended_before(lease)
    if lease.ends_at_us <= context.at_us:
        return Accepted(expire_lease(state, lease, context.at_us), lease.lease_id)
    reason_code = RENTER_CANCEL if command.actor == lease.renter else PROVIDER_CANCEL
    ending = Ending("terminated", reason_code, reason=cast(TerminateLease, command.body).reason)
    return Accepted(close_lease(state, lease, context.at_us, ending), lease.lease_id)


def expire(state: State, command: Command, context: Context) -> Decision:
    """A lease ends at its hard lifetime, not before."""
    lease_id = cast(ExpireLease, command.body).lease_id
    lease = state.market.leases.get(lease_id)
    if lease is None:
        return Refused("lease_not_found", f"there is no lease {lease_id}")
    if lease.status != "active":
        return _ended_before(lease)
    if lease.ends_at_us > context.at_us:
        return Refused("not_due", f"the lease runs until {lease.ends_at_us}")
    return Accepted(expire_lease(state, lease, context.at_us), lease_id)


def _ended_before(lease: Lease) -> Accepted:
    return Accepted((), lease.lease_id, seq=lease.last_pos)
