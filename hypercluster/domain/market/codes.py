"""Refusal codes of offers and leases. Those of providers and nodes stand with the nodes."""

from hypercluster.domain.codes import Code, register
from hypercluster.domain.nodes import codes as _nodes  # noqa: F401 (its import registers them)

CODES = {
    "invalid_mode": Code(422, "mode is `single` or `cluster`"),
    "missing_max_lifetime_hours": Code(422, "an offer states its longest lifetime"),
    "invalid_max_lifetime_hours": Code(422, "the longest lifetime is above zero"),
    "lifetime_over_cap": Code(422, "the lifetime exceeds the policy's cap"),
    "invalid_node_ids": Code(422, "a node id is blank or too long"),
    "node_not_offerable": Code(409, "the node is offline, draining or suspended, or lost its host key to another node"),
    "invalid_mode_nodes": Code(422, "single offers have exactly one node, cluster offers at least two"),
    "ib_required": Code(422, "require_ib asks for InfiniBand on every node"),
    "offer_exceeds_nodes": Code(422, "the offer claims more than its nodes do"),
    "missing_price_per_hour": Code(422, "an offer states its price: there is no catalogue price for it"),
    "invalid_price_per_hour": Code(422, "the price is above zero and has at most six decimals"),
    "price_over_cap": Code(422, "the price exceeds the policy's cap"),
    "metadata_too_large": Code(422, "the metadata exceeds the policy's limit"),
    "too_many_offers": Code(409, "the node stands in as many listed offers as it may"),
    "offer_not_found": Code(404, "there is no such offer"),
    "offer_not_owned": Code(403, "the offer belongs to another provider"),
    "offer_active_lease": Code(409, "the offer is under an active lease"),
    "offer_not_listed": Code(409, "the offer is leased or withdrawn"),
    "invalid_max_price": Code(422, "max_price is above zero and has at most six decimals"),
    "invalid_lifetime_hours": Code(422, "lifetime_hours is above zero"),
    "price_over_renter_max": Code(422, "the offer costs more than max_price"),
    "lifetime_over_offer_max": Code(422, "the lifetime exceeds the offer's"),
    "require_ib_not_satisfied": Code(409, "a node of the offer has lost its InfiniBand"),
    "capacity_unavailable": Code(409, "a node of the offer is under another active lease"),
    "lease_not_found": Code(404, "there is no such lease"),
    "lease_not_owned": Code(403, "only the renter and the provider of a lease may end it"),
}

register(CODES)
