"""Offers and leases, under the reference's noun `marketplace` and under their own."""

# ruff: noqa: PLR0913, PLR0917 -- a command's options are its parameters

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from hypercluster.cli.errors import usage
from hypercluster.cli.options import MARKET
from hypercluster.cli.session import Session, command

marketplace = typer.Typer(help="Offers, rents and leases, as the reference spells them.")
offers = typer.Typer(help="Nodes for rent.")
leases = typer.Typer(help="Rented nodes.")
offer = typer.Typer(help="One offer.")
lease = typer.Typer(help="One lease.")

market_offers = typer.Typer(help="Nodes for rent.")
marketplace.add_typer(market_offers, name="offers")
marketplace.add_typer(offer, name="offer")
marketplace.add_typer(lease, name="lease")

OFFER_COLUMNS = ("id", "status", "gpu_model", "gpu_count", "node_count", "mode", "price_per_hour", "max_lifetime_hours")
_NEW_OFFER = "--node-ids NODE_ID --price 2.5 --lifetime 24"
LEASE_COLUMNS = ("id", "status", "offer_id", "price_per_hour", "started_at", "ends_at", "termination_reason")


@command(offers, "list", panel=MARKET, example="hypercluster offers list --gpu-model H100_80GB")
@command(market_offers, "list", panel=MARKET, example="hypercluster marketplace offers list --gpu-model H100_80GB")
def list_offers(
    session: Session,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", help="Only this model.")] = None,
    require_ib: Annotated[bool, typer.Option("--require-ib", help="Only offers with InfiniBand.")] = False,
    tee: Annotated[str | None, typer.Option("--tee", help="Only this attestation.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="listed, leased, withdrawn or all.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Cursor: `next` of the page before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="How many at most.", min=1, max=500)] = None,
) -> None:
    """Offers that can be rented."""
    query = {
        "gpu_model": gpu_model,
        "require_ib": "true" if require_ib else None,
        "tee": tee,
        "status": status,
        "after": after,
        "limit": limit,
    }
    found = session.get("/v1/offers", query)
    session.show(found, line=f"offers={len(found.get('items', []))}", columns=OFFER_COLUMNS)


@command(offers, "show", panel=MARKET, example="hypercluster offers show OFFER_ID")
def show_offer(session: Session, offer_id: Annotated[str, typer.Argument(help="Id of the offer.")]) -> None:
    """One offer, in any state."""
    session.show(session.get(f"/v1/offers/{offer_id}"))


@command(offers, "create", signed=True, panel=MARKET, example=f"hypercluster offers create {_NEW_OFFER}")
@command(offer, "create", signed=True, panel=MARKET, example=f"hypercluster marketplace offer create {_NEW_OFFER}")
def create_offer(
    session: Session,
    node_ids: Annotated[str, typer.Option("--node-ids", help="Ids of the nodes, separated by commas.")],
    price: Annotated[str, typer.Option("--price", help="US dollars per hour for the whole offer.")],
    lifetime: Annotated[str, typer.Option("--lifetime", help="Longest rent, in hours.")],
    mode: Annotated[str, typer.Option("--mode", help="single or cluster.")] = "single",
    require_ib: Annotated[bool, typer.Option("--require-ib", help="Promise InfiniBand.")] = False,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", help="Default: that of the nodes.")] = None,
    gpu_count: Annotated[int | None, typer.Option("--gpu-count", help="Default: that of the nodes.", min=1)] = None,
    tee: Annotated[str | None, typer.Option("--tee", help="Default: that of the first node.")] = None,
) -> None:
    """Offer nodes for rent."""
    body = {
        "node_ids": [part.strip() for part in node_ids.split(",") if part.strip()],
        "price_per_hour": decimal(price, "--price"),
        "max_lifetime_hours": decimal(lifetime, "--lifetime"),
        "mode": mode,
        "require_ib": require_ib,
        "gpu_model": gpu_model,
        "gpu_count": gpu_count,
        "tee": tee,
    }
    created = session.post("/v1/offers", {name: value for name, value in body.items() if value is not None})
    session.show(created, line=f"offer_id={created.get('id')}")


@command(offers, "withdraw", signed=True, panel=MARKET, example="hypercluster offers withdraw OFFER_ID")
def withdraw_offer(session: Session, offer_id: Annotated[str, typer.Argument(help="Id of the offer.")]) -> None:
    """Take an offer off the market."""
    withdrawn = session.client.request("DELETE", f"/v1/offers/{offer_id}")
    session.show(withdrawn, line=f"withdrawn offer_id={offer_id}")


@command(
    leases, "rent", signed=True, panel=MARKET, example="hypercluster leases rent --offer-id OFFER_ID --max-price 3"
)
@command(marketplace, "rent", signed=True, panel=MARKET, example="hypercluster marketplace rent --offer-id OFFER_ID")
def rent(
    session: Session,
    offer_id: Annotated[str, typer.Option("--offer-id", help="Id of the offer.")],
    max_hours: Annotated[str | None, typer.Option("--max-hours", help="Rent for so many hours.")] = None,
    max_price: Annotated[str | None, typer.Option("--max-price", help="Refuse a higher price per hour.")] = None,
) -> None:
    """Rent an offer. The lease ends by itself when its hours are over."""
    body: dict[str, object] = {}
    if max_hours is not None:
        body["lifetime_hours"] = decimal(max_hours, "--max-hours")
    if max_price is not None:
        body["max_price"] = decimal(max_price, "--max-price")
    rented = session.post(f"/v1/offers/{offer_id}/rent", body)
    session.show(rented, line=f"lease_id={rented.get('lease', {}).get('id')}")


@command(leases, "list", signed=None, panel=MARKET, example="hypercluster leases list --key-file key.json")
def list_leases(
    session: Session,
    status: Annotated[str | None, typer.Option("--status", help="active, expired, terminated or failed.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="Cursor: `next` of the page before.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="How many at most.", min=1, max=500)] = None,
) -> None:
    """Leases of a hotkey, as renter or provider."""
    found = session.get("/v1/leases", {"status": status, "after": after, "limit": limit}, signed=session.signs)
    session.show(found, columns=LEASE_COLUMNS)


@command(lease, "show", signed=None, panel=MARKET, example="hypercluster marketplace lease show --id LEASE_ID")
@command(leases, "show", signed=None, panel=MARKET, example="hypercluster leases show LEASE_ID")
def show_lease(
    session: Session,
    lease_id: Annotated[str | None, typer.Argument(help="Id of the lease.")] = None,
    named: Annotated[str | None, typer.Option("--id", help="Id of the lease.")] = None,
) -> None:
    """One lease."""
    session.show(session.get(f"/v1/leases/{one_id(lease_id, named)}", signed=session.signs))


@command(leases, "terminate", signed=True, panel=MARKET, example="hypercluster leases terminate --lease-id LEASE_ID")
@command(marketplace, "terminate", signed=True, panel=MARKET, example="hypercluster marketplace terminate --lease-id L")
def terminate(
    session: Session,
    lease_id: Annotated[str, typer.Option("--lease-id", help="Id of the lease.")],
    reason: Annotated[str, typer.Option("--reason", help="Why. Stays private.")] = "cli_terminate",
) -> None:
    """End a lease and the jobs that run on it."""
    ended = session.post(f"/v1/leases/{lease_id}/terminate", {"reason": reason}, private=True)
    session.show(ended, line=f"terminated lease_id={lease_id}")


def decimal(text: str, option: str) -> Decimal:
    """A number as it was typed, digit for digit."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise usage(f"{option} is no decimal number: {text}", field=option)
    return number


def one_id(positional: str | None, named: str | None) -> str:
    """The id given either way."""
    found = positional or named
    if not found or (positional and named and positional != named):
        raise usage("name one id, as an argument or with --id", field="--id")
    return found
