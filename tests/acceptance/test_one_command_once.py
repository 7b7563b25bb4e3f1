"""One signed request is one command, however often it arrives; what was not decided can be sent again as it is."""

import asyncio
import secrets
from collections import Counter

import httpx2
import pytest

from hypercluster.cli.client import sign_headers
from hypercluster.cli.keys import signer_from_seed
from tests.support.crash_rig import AUDIENCE, ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    found = ServerProcess(tmp_path_factory.mktemp("once"), "sim").start()
    yield found
    found.stop()


def signed(path: str, body: bytes = b"{}") -> tuple[str, bytes, dict[str, str]]:
    """A request of a fresh sr25519 key, ready to be sent any number of times."""
    signer = signer_from_seed(secrets.token_bytes(32), "sr25519")
    return path, body, sign_headers(signer, AUDIENCE, "POST", path, body)


def send(server: ServerProcess, request: tuple[str, bytes, dict[str, str]]) -> httpx2.Response:
    path, body, headers = request
    return httpx2.post(server.url + path, content=body, headers=headers, timeout=30.0)


def test_fifty_copies_at_once_are_one_command(server):
    path, body, headers = signed("/v1/providers/register", b'{"display_name": "fifty"}')

    async def copies() -> list[httpx2.Response]:
        async with httpx2.AsyncClient(base_url=server.url, timeout=30.0) as http:
            return await asyncio.gather(*(http.post(path, content=body, headers=headers) for _ in range(50)))

    answers = asyncio.run(copies())
    assert Counter(answer.status_code for answer in answers) == Counter({200: 1, 401: 49})
    seq = next(answer.json()["seq"] for answer in answers if answer.status_code == 200)
    refusals = [answer.json()["detail"] for answer in answers if answer.status_code == 401]
    assert {(refusal["code"], refusal["seq"]) for refusal in refusals} == {("nonce_replay", seq)}
    events = httpx2.get(f"{server.url}/v1/events?hotkey={headers['X-Hotkey']}").json()["items"]
    assert [event["type"] for event in events] == ["provider.registered"]


def test_503_burns_nothing(server):
    request = signed("/v1/providers/register")
    httpx2.post(f"{server.url}/v1/sim/drain", json={"draining": True})
    assert send(server, request).status_code == 503
    httpx2.post(f"{server.url}/v1/sim/drain", json={"draining": False})
    assert send(server, request).status_code == 200
