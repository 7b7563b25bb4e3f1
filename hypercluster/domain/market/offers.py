"""What may be offered, and when an offer may be taken back."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from events.types.market import OfferListed, OfferWithdrawn
from events.types.nodes import NodeFacts
from events.types.policy import Policy
from hypercluster.domain import strict_json
from hypercluster.domain.kernel import US_PER_H, Accepted, Command, Context, Decision, Ids, Refused
from hypercluster.domain.market.commands import CreateOffer
from hypercluster.domain.market.ending import expire_lease
from hypercluster.domain.market.supply import common_tee, find_provider, why_it_exceeds, why_not_offerable
from hypercluster.domain.prices import floor, micro_usd
from projections.fold import State
from projections.folds.market import Provider

OFFERS_PER_NODE_MAX = 256
PROVIDER_WITHDREW = "provider_withdrew"

_MODES = ("single", "cluster")


class _Hardware(NamedTuple):
    """What the offer says about its nodes."""

    gpu_model: str
    gpu_count: int
    tee: str


def create(state: State, command: Command, context: Context) -> Decision:
    """A provider offers nodes. The checks stand in the order in which their codes are documented."""
    body = cast(CreateOffer, command.body)
    provider = find_provider(state, command.actor)
    if isinstance(provider, Refused):
        return provider
    if provider.status != "active":
        return Refused("provider_not_active", f"the provider is {provider.status}")
    mode = body.mode.strip().lower() or "single"
    if mode not in _MODES:
        return Refused("invalid_mode", "mode is single or cluster", field="mode")
    policy = state.policy.policy_at(context.at_us).policy
    lifetime_us = _lifetime_us(body, policy)
    if isinstance(lifetime_us, Refused):
        return lifetime_us
    node_ids = tuple(dict.fromkeys(body.node_ids))
    facts = _facts(state, provider, node_ids, context.at_us)
    if isinstance(facts, Refused):
        return facts
    hardware = _hardware(body, mode, facts)
    if isinstance(hardware, Refused):
        return hardware
    price = _price(body, policy)
    if isinstance(price, Refused):
        return price
    metadata = None if body.metadata is None else strict_json.dumps(body.metadata)
    if metadata is not None and len(metadata.encode()) > policy.inventory_bytes_max:
        return Refused("metadata_too_large", f"more than {policy.inventory_bytes_max} bytes", field="metadata")
    offer_id = Ids(state.ledger.info["ledger"].seed, command).new("offer")
    event = OfferListed(
        offer_id=offer_id,
        provider_id=provider.provider_id,
        node_ids=node_ids,
        mode=mode,
        gpu_model=hardware.gpu_model,
        gpu_count=hardware.gpu_count,
        require_ib=body.require_ib,
        tee=hardware.tee,
        price_micro_usd_h=price,
        max_lifetime_us=lifetime_us,
        location_hint=body.location_hint or facts[0].location_hint,
        metadata=metadata,
    )
    return Accepted((event,), offer_id, created=True)


def _lifetime_us(body: CreateOffer, policy: Policy) -> int | Refused:
    """The longest lifetime in microseconds, rounded down."""
    field = "max_lifetime_hours"
    if body.max_lifetime_hours is None:
        return Refused("missing_max_lifetime_hours", "max_lifetime_hours is missing", field=field)
    lifetime_us = floor(body.max_lifetime_hours, US_PER_H)
    if lifetime_us <= 0:
        return Refused("invalid_max_lifetime_hours", "max_lifetime_hours is not above zero", field=field)
    if lifetime_us > policy.lifetime_cap_h * US_PER_H:
        return Refused("lifetime_over_cap", f"a lease lasts at most {policy.lifetime_cap_h} hours", field=field)
    return lifetime_us


def _facts(state: State, provider: Provider, node_ids: Sequence[str], at_us: int) -> tuple[NodeFacts, ...] | Refused:
    """The facts of the provider's own nodes that may be offered now."""
    if not all(0 < len(node_id.strip()) <= 36 for node_id in node_ids):
        return Refused("invalid_node_ids", "a node id is blank or longer than 36 characters", field="node_ids")
    facts: list[NodeFacts] = []
    for node_id in node_ids:
        node = state.nodes.nodes.get(node_id)
        if node is None:
            return Refused("node_not_found", f"there is no node {node_id}", field="node_ids")
        if node.provider_id != provider.provider_id:
            return Refused("node_not_owned", f"node {node_id} belongs to another provider", field="node_ids")
        why_not = why_not_offerable(state, node, at_us)
        if why_not is not None:
            return Refused("node_not_offerable", why_not, field="node_ids", hint="send a heartbeat of the node")
        if len(state.market.listed_by_node.get(node_id, ())) >= OFFERS_PER_NODE_MAX:
            return Refused("too_many_offers", f"node {node_id} stands in {OFFERS_PER_NODE_MAX} listed offers")
        facts.append(node.facts)
    return tuple(facts)


def _hardware(body: CreateOffer, mode: str, facts: Sequence[NodeFacts]) -> _Hardware | Refused:
    if (mode == "single") != (len(facts) == 1):
        return Refused("invalid_mode_nodes", "single takes exactly one node, cluster at least two", field="node_ids")
    if body.require_ib and not all(one.has_ib for one in facts):
        return Refused("ib_required", "a node has no InfiniBand", field="require_ib")
    gpu_model = (body.gpu_model or "").strip() or facts[0].gpu_model
    gpu_count = sum(one.gpu_count for one in facts) if body.gpu_count is None else body.gpu_count
    tee = (body.tee or "").strip().lower() or common_tee(facts)
    exceeds = why_it_exceeds(facts, gpu_model, gpu_count, tee)
    if exceeds is not None:
        return Refused("offer_exceeds_nodes", exceeds)
    return _Hardware(gpu_model, gpu_count, tee)


def _price(body: CreateOffer, policy: Policy) -> int | Refused:
    """The price in micro-USD per hour. No number on the wire is rounded into a price."""
    field = "price_per_hour"
    if body.price_per_hour is None:
        return Refused("missing_price_per_hour", "price_per_hour is missing", field=field)
    price = micro_usd(body.price_per_hour)
    if price is None or price <= 0:
        return Refused("invalid_price_per_hour", "not above zero, or more than six decimals", field=field)
    if price > policy.price_cap_micro_usd_h:
        return Refused("price_over_cap", f"at most {policy.price_cap_micro_usd_h} micro-USD per hour", field=field)
    return price


def withdraw(state: State, command: Command, context: Context) -> Decision:
    """A provider takes an offer back. One whose lease has ended may be withdrawn too."""
    offer_id = command.path["offer_id"]
    provider = find_provider(state, command.actor)
    if isinstance(provider, Refused):
        return provider
    offer = state.market.offers.get(offer_id)
    if offer is None:
        return Refused("offer_not_found", f"there is no offer {offer_id}")
    if offer.provider_id != provider.provider_id:
        return Refused("offer_not_owned", "the offer belongs to another provider")
    if offer.status == "withdrawn":
        return Accepted((), offer_id, seq=offer.last_pos)
    lease = None if offer.lease_id is None else state.market.leases[offer.lease_id]
    running = lease is not None and lease.status == "active"
    if lease is not None and running and lease.ends_at_us > context.at_us:
        return Refused("offer_active_lease", f"lease {lease.lease_id} runs", hint="terminate the lease first")
    expired = expire_lease(state, lease, context.at_us) if lease is not None and running else ()
    return Accepted((*expired, OfferWithdrawn(offer_id=offer_id, reason_code=PROVIDER_WITHDREW)), offer_id)
