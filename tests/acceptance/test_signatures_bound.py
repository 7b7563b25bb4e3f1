"""A signature holds for one request to one deployment at one time: whatever is changed on the way is refused.

Two real production servers, sr25519 keys, HTTP. The refused copy leaves no trace: the original works afterwards.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest

from hypercluster.cli.keys import KeySigner, signer_from_seed
from hypercluster.domain.identity.signed_text import SignedText
from tests.support.crash_rig import AUDIENCE, ServerProcess
from tests.support.serving import TOKEN

REGISTER = "/v1/providers/register"


@dataclass(frozen=True)
class Request:
    """What goes over the wire. text: what the key signed."""

    method: str
    target: str
    body: bytes
    headers: dict[str, str]
    text: SignedText

    def but(self, **headers: str) -> "Request":
        """The same with other headers; dashes are written as underscores."""
        return replace(self, headers=self.headers | {name.replace("_", "-"): value for name, value in headers.items()})


def fresh() -> KeySigner:
    return signer_from_seed(secrets.token_bytes(32), "sr25519")


def signed(key: KeySigner, method: str, target: str, value: object = None, **parts: Any) -> Request:
    """A request as a client signs it. parts: of the signed text, to choose them."""
    body = b"" if value is None else json.dumps(value).encode()
    given = {
        "audience": AUDIENCE,
        "method": method,
        "path": target,
        "hotkey": key.hotkey,
        "nonce": secrets.token_hex(16),
        "seconds": int(time.time()),
        "body_sha256": hashlib.sha256(body).hexdigest(),
    }
    text = SignedText(**{**given, **parts})
    headers = {
        "X-Hotkey": text.hotkey,
        "X-Signature": key.sign(text.message()),
        "X-Nonce": text.nonce,
        "X-Timestamp": f"{text.seconds:010d}",
    }
    return Request(method, target, body, headers, text)


@dataclass(frozen=True)
class Site:
    """A server, and a client that makes a connection for each request."""

    server: ServerProcess
    http: httpx2.Client


@contextmanager
def running(server: ServerProcess) -> Iterator[Site]:
    """A server that must not have met a fault when it is over."""
    try:
        server.start()
        limits = httpx2.Limits(max_keepalive_connections=0)
        with httpx2.Client(base_url=server.url, timeout=30.0, limits=limits) as http:
            yield Site(server, http)
    finally:
        server.stop()
    assert server.faults() == []


def send(site: Site, request: Request) -> httpx2.Response:
    return site.http.request(request.method, request.target, content=request.body, headers=request.headers)


def send_all(site: Site, requests: list[Request]) -> list[httpx2.Response]:
    """All at once; the answers in the order of the requests."""

    async def everything() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(base_url=site.server.url, timeout=30.0) as http:
            return await asyncio.gather(
                *(http.request(one.method, one.target, content=one.body, headers=one.headers) for one in requests)
            )

    return asyncio.run(everything())


def refusal(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["detail"]["code"])


def told(site: Site, key: KeySigner) -> list[str]:
    """The types of the events that this key's commands made, oldest first."""
    items = site.http.get(f"/v1/events?hotkey={key.hotkey}&limit=500").json()["items"]
    return [item["type"] for item in items if item["actor"] == key.hotkey]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(ServerProcess(tmp_path_factory.mktemp("here"), "production")) as site:
        yield site


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("elsewhere")
    with running(ServerProcess(directory, "production", HYPER_AUDIENCE="hypercluster@there")) as site:
        yield site


@dataclass(frozen=True)
class Market:
    """A provider with one node, two offers of it, and somebody who has never been here."""

    site: Site
    provider: KeySigner
    renter: KeySigner
    offers: tuple[str, str]

    def rent(self, number: int = 0, value: object = None, **parts: Any) -> Request:
        """The renter's request for one of the offers."""
        body = {"lifetime_hours": 1} if value is None else value
        return signed(self.renter, "POST", f"/v1/offers/{self.offers[number]}/rent", body, **parts)


def made(site: Site, key: KeySigner, target: str, value: object) -> str:
    answer = send(site, signed(key, "POST", target, value))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


@pytest.fixture
def market(here: Site) -> Market:
    provider = fresh()
    made(here, provider, REGISTER, {})
    node = made(here, provider, "/v1/nodes", {"gpu_model": "H100", "gpu_count": 8})
    body = {"node_ids": [node], "price_per_hour": 2, "max_lifetime_hours": 2}
    first, second = (made(here, provider, "/v1/offers", body) for _ in range(2))
    return Market(here, provider, fresh(), (first, second))


# what is bound, element by element


def other_path(request: Request, market: Market) -> Request:
    return replace(request, target=f"/v1/offers/{market.offers[1]}/rent")


def more_query(request: Request, _market: Market) -> Request:
    return replace(request, target=request.target + "?lifetime_hours=2")


def other_body(request: Request, _market: Market) -> Request:
    return replace(request, body=b'{"lifetime_hours": 2}')


def spaced_body(request: Request, _market: Market) -> Request:
    return replace(request, body=request.body + b" ")


def no_body(request: Request, _market: Market) -> Request:
    return replace(request, body=b"")


def other_nonce(request: Request, _market: Market) -> Request:
    return request.but(X_Nonce=secrets.token_hex(16))


def other_time(request: Request, _market: Market) -> Request:
    return request.but(X_Timestamp=f"{request.text.seconds + 1:010d}")


def old_time(request: Request, _market: Market) -> Request:
    return request.but(X_Timestamp=f"{request.text.seconds - 302:010d}")


def other_hotkey(request: Request, market: Market) -> Request:
    return request.but(X_Hotkey=market.provider.hotkey)


def other_signature(request: Request, _market: Market) -> Request:
    flipped = int(request.headers["X-Signature"], 16) ^ 1 << 300
    return request.but(X_Signature=f"0x{flipped:0128x}")


def other_scheme(request: Request, _market: Market) -> Request:
    return request.but(X_Signature="ed25519:" + request.headers["X-Signature"].removeprefix("0x"))


def shared_token(request: Request, _market: Market) -> Request:
    """Base holds the token too; in production it signs nothing, in neither text."""
    return request.but(X_Signature=hmac.digest(TOKEN.encode(), request.text.message(), "sha256").hex())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (other_path, "invalid_signature"),
        (more_query, "invalid_signature"),
        (other_body, "invalid_signature"),
        (spaced_body, "invalid_signature"),
        (no_body, "invalid_signature"),
        (other_nonce, "invalid_signature"),
        (other_time, "invalid_signature"),
        (old_time, "stale_signature"),
        (other_hotkey, "invalid_signature"),
        (other_signature, "invalid_signature"),
        (other_scheme, "invalid_signature"),
        (shared_token, "invalid_signature"),
    ],
)
def test_a_changed_element_is_refused_and_the_original_works(
    market: Market, change: Callable[[Request, Market], Request], code: str
) -> None:
    request = market.rent()
    assert refusal(send(market.site, change(request, market))) == (401, code)
    assert told(market.site, market.renter) == []
    answer = send(market.site, request)
    assert answer.status_code == 200, answer.text
    lease = answer.json()["lease"]
    assert (lease["offer_id"], lease["renter_hotkey"]) == (market.offers[0], market.renter.hotkey)
    assert told(market.site, market.renter) == ["lease.started"]


def test_the_method_is_bound(market: Market) -> None:
    target = f"/v1/offers/{market.offers[0]}"
    looking, withdrawing = (signed(market.provider, method, target) for method in ("GET", "DELETE"))
    for request, method in ((looking, "DELETE"), (withdrawing, "GET"), (looking, "HEAD")):
        answer = send(market.site, replace(request, method=method))
        assert answer.status_code == 401
        assert method == "HEAD" or refusal(answer) == (401, "invalid_signature")
    overridden = send(market.site, looking.but(X_HTTP_Method_Override="DELETE"))
    assert overridden.json()["status"] == "listed"
    assert send(market.site, withdrawing).status_code == 200
    assert send(market.site, looking).json()["status"] == "withdrawn"


def test_the_query_of_a_private_read_is_bound(market: Market) -> None:
    renter, target = market.renter, "/v1/leases?limit=1&status=active"
    assert send(market.site, market.rent()).status_code == 200
    request = signed(renter, "GET", target)
    for changed in ("/v1/leases?limit=2&status=active", "/v1/leases?status=active&limit=1", "/v1/leases"):
        assert refusal(send(market.site, replace(request, target=changed))) == (401, "invalid_signature")
    for _ in range(2):
        items = send(market.site, request).json()["items"]
        assert [item["renter_hotkey"] for item in items] == [renter.hotkey]


def test_the_audience_is_bound(market: Market, elsewhere: Site) -> None:
    key = fresh()
    mine, theirs = (
        signed(key, "POST", REGISTER, {}, audience=audience) for audience in (AUDIENCE, "hypercluster@there")
    )
    assert refusal(send(elsewhere, mine)) == (401, "invalid_signature")
    assert refusal(send(market.site, theirs)) == (401, "invalid_signature")
    assert told(elsewhere, key) == told(market.site, key) == []
    assert send(market.site, mine).status_code == send(elsewhere, theirs).status_code == 200


@pytest.mark.parametrize(("offset", "status"), [(-297, 200), (-303, 401), (297, 200), (303, 401)])
def test_the_window_is_three_hundred_seconds_either_way(market: Market, offset: int, status: int) -> None:
    answer = send(market.site, market.rent(seconds=int(time.time()) + offset))
    assert answer.status_code == status
    assert status == 200 or refusal(answer) == (401, "stale_signature")


# once, however often


def spellings(request: Request, key: KeySigner) -> list[Request]:
    """The same command, written otherwise. sr25519 signatures differ each time."""
    digits = request.headers["X-Signature"].removeprefix("0x")
    wrapped = key.sign(b"<Bytes>" + request.text.message() + b"</Bytes>")
    second = {name.replace("X-", "X-Hyper-"): value for name, value in request.headers.items()}
    return [
        request,
        request.but(X_Signature=digits.upper()),
        request.but(X_Signature="0x01" + digits),
        request.but(X_Signature=key.sign(request.text.message())),
        request.but(X_Signature=wrapped),
        replace(request, headers=second),
        replace(request, headers=request.headers | second),
    ]


def test_another_spelling_of_the_same_request_is_a_replay(market: Market) -> None:
    forms = spellings(market.rent(), market.renter)
    first = send(market.site, forms[-1])
    assert first.status_code == 200
    for form in forms:
        answer = send(market.site, form)
        assert refusal(answer) == (401, "nonce_replay")
        assert answer.json()["detail"]["seq"] == first.json()["seq"]


def test_every_spelling_is_good_by_itself(market: Market) -> None:
    for number in range(len(spellings(market.rent(), market.renter))):
        request = spellings(signed(market.renter, "POST", REGISTER, {}), market.renter)[number]
        assert send(market.site, request).status_code == 200, number


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "stranger"])
def test_fifty_copies_of_a_refused_request_are_one_refusal(market: Market, is_known: bool) -> None:
    if is_known:
        made(market.site, market.renter, REGISTER, {})
    before = told(market.site, market.renter)
    request = signed(market.renter, "POST", "/v1/offers/none/rent", {})
    answers = Counter(refusal(answer) for answer in send_all(market.site, [request] * 50))
    assert answers == {(404, "offer_not_found"): 1, (401, "nonce_replay"): 49}
    assert told(market.site, market.renter) == before + ["command.refused"] * is_known


def test_fifty_spellings_at_once_rent_once(market: Market) -> None:
    forms = spellings(market.rent(), market.renter)
    answers = send_all(market.site, [forms[number % len(forms)] for number in range(50)])
    assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 49}
    assert {refusal(answer)[1] for answer in answers if answer.status_code == 401} == {"nonce_replay"}
    assert told(market.site, market.renter) == ["lease.started"]


def test_a_nonce_stays_used_when_the_server_is_killed(market: Market) -> None:
    made(market.site, market.renter, REGISTER, {})
    accepted, refused = market.rent(), signed(market.renter, "POST", "/v1/offers/none/rent", {})
    seqs = [send(market.site, accepted).json()["seq"], send(market.site, refused).json()["detail"]["seq"]]
    market.site.server.kill()
    market.site.server.start()
    for request, seq in zip((accepted, refused), seqs, strict=True):
        answer = send(market.site, request)
        assert refusal(answer) == (401, "nonce_replay")
        assert answer.json()["detail"]["seq"] == seq


# what was not decided burns nothing


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"lifetime_hours": "long"}, "invalid_body"),  # found by the schema
        ({"max_price": 1}, "price_over_renter_max"),  # found by the decider
    ],
)
def test_the_nonce_of_a_422_is_good_for_another_body(market: Market, bad: object, code: str) -> None:
    request = market.rent()
    wrong = market.rent(value=bad, nonce=request.text.nonce)
    for _ in range(2):
        assert refusal(send(market.site, wrong)) == (422, code)
    assert told(market.site, market.renter) == []
    assert send(market.site, request).status_code == 200
    assert refusal(send(market.site, wrong))[0] in (401, 422)
    assert told(market.site, market.renter) == ["lease.started"]


def by_another(request: Request, key: KeySigner) -> Request:
    """The same wish of somebody else."""
    return signed(key, request.method, request.target, json.loads(request.body))


def test_what_met_an_empty_budget_is_decided_when_the_obstacle_is_gone(market: Market) -> None:
    """The node is taken, the renter's budget for refusals used up: 429. Freed, the same bytes rent it."""
    made(market.site, market.renter, REGISTER, {})
    rival = fresh()
    lease = send(market.site, by_another(market.rent(1), rival)).json()["lease"]["id"]
    request = market.rent(0)
    for _ in range(6):
        wasted = [signed(market.renter, "POST", "/v1/offers/none/rent", {}) for _ in range(60)]
        codes = Counter(refusal(answer) for answer in send_all(market.site, wasted))
        assert set(codes) <= {(404, "offer_not_found"), (429, "too_many_refusals")}
        if codes[429, "too_many_refusals"]:
            break
    assert refusal(send(market.site, request)) == (429, "too_many_refusals")
    freed = send(market.site, signed(rival, "POST", f"/v1/leases/{lease}/terminate", {}))
    assert freed.status_code == 200, freed.text
    answer = send(market.site, request)
    assert answer.status_code == 200, answer.text
    assert answer.json()["lease"]["offer_id"] == market.offers[0]
    assert refusal(send(market.site, request)) == (401, "nonce_replay")


def test_a_refusal_is_recorded_again_when_the_budget_has_refilled(market: Market) -> None:
    made(market.site, market.renter, REGISTER, {})
    requests = [signed(market.renter, "POST", "/v1/offers/none/rent", {}) for _ in range(200)]
    answers = send_all(market.site, requests)
    limited = [one for one, answer in zip(requests, answers, strict=True) if answer.status_code == 429]
    assert limited
    until = time.monotonic() + 10
    while refusal(send(market.site, limited[0])) == (429, "too_many_refusals"):
        assert time.monotonic() < until
        time.sleep(0.3)
    replayed = send(market.site, limited[0])
    assert refusal(replayed) == (401, "nonce_replay")
    event = market.site.http.get(f"/v1/events/{replayed.json()['detail']['seq']}").json()
    assert (event["type"], event["actor"]) == ("command.refused", market.renter.hotkey)
