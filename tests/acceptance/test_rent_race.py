"""One offer, many renters at once: exactly one of them wins, whatever their number."""

import asyncio
import secrets
from collections import Counter

import httpx2
import pytest

from hypercluster.cli.client import sign_headers
from hypercluster.cli.keys import KeySigner, signer_from_seed
from hypercluster.domain import strict_json
from tests.support.crash_rig import AUDIENCE, ServerProcess

LOST = {"offer_not_listed", "capacity_unavailable"}


def fresh() -> KeySigner:
    return signer_from_seed(secrets.token_bytes(32), "sr25519")


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """A production server with one provider. No node of it is ever connected to."""
    server = ServerProcess(tmp_path_factory.mktemp("race"), "production").start()
    yield server, fresh()
    server.stop()


async def ask(http: httpx2.AsyncClient, signer: KeySigner, path: str, body: object = None) -> httpx2.Response:
    data = b"" if body is None else strict_json.dumps(body).encode()
    return await http.post(path, content=data, headers=sign_headers(signer, AUDIENCE, "POST", path, data))


async def made(http: httpx2.AsyncClient, signer: KeySigner, path: str, body: object) -> str:
    answer = await ask(http, signer, path, body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def new_node(http: httpx2.AsyncClient, provider: KeySigner) -> str:
    await ask(http, provider, "/v1/providers/register", {})
    return await made(http, provider, "/v1/nodes", {"gpu_model": "H100", "gpu_count": 8})


async def new_offer(http: httpx2.AsyncClient, provider: KeySigner, node: str) -> str:
    body = {"node_ids": [node], "price_per_hour": 2, "max_lifetime_hours": 1}
    return await made(http, provider, "/v1/offers", body)


async def race(http: httpx2.AsyncClient, offers: list[str], renters: int) -> list[httpx2.Response]:
    """Every renter has a key of its own and asks once; renter i for offer i modulo their number."""
    signers = [fresh() for _ in range(renters)]
    paths = [f"/v1/offers/{offers[index % len(offers)]}/rent" for index in range(renters)]
    return await asyncio.gather(*(ask(http, signer, path) for signer, path in zip(signers, paths, strict=True)))


def one_winner(answers: list[httpx2.Response]) -> httpx2.Response:
    outcome = Counter(answer.status_code for answer in answers)
    assert outcome == Counter({200: 1, 409: len(answers) - 1})
    assert {answer.json()["detail"]["code"] for answer in answers if answer.status_code == 409} <= LOST
    return next(answer for answer in answers if answer.status_code == 200)


async def leases_of(http: httpx2.AsyncClient, offer: str) -> int:
    """How many leases the ledger holds for this offer."""
    found, after = 0, 0
    while True:
        page = (await http.get(f"/v1/events?type=lease.started&after={after}&limit=500")).json()
        found += sum(item["data"]["offer_id"] == offer for item in page["items"])
        if page["next"] is None:
            return found
        after = page["next"]


def play(server: ServerProcess, provider: KeySigner, renters: int, rounds: int, offers_each: int) -> None:
    async def rounds_of() -> None:
        limits = httpx2.Limits(max_connections=64)
        async with httpx2.AsyncClient(base_url=server.url, timeout=30.0, limits=limits) as http:
            for _ in range(rounds):
                owner = fresh() if offers_each > 1 else provider
                node = await new_node(http, owner)
                offers = [await new_offer(http, owner, node) for _ in range(offers_each)]
                won = one_winner(await race(http, offers, renters)).json()["lease"]
                assert sum([await leases_of(http, offer) for offer in offers]) == 1
                assert won["offer_id"] in offers

    asyncio.run(rounds_of())


@pytest.mark.parametrize("renters", [2, 8, 50])
def test_one_winner(market, renters):
    play(*market, renters, rounds=2, offers_each=1)


@pytest.mark.parametrize("renters", [2, 8, 50])
def test_two_offers_of_one_node_have_one_winner(market, renters):
    play(*market, renters, rounds=1, offers_each=2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("renters", [2, 8, 50])
def test_one_winner_in_fifty_rounds(market, renters):
    play(*market, renters, rounds=50, offers_each=1)
