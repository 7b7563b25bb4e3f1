"""Nonsense on every route: a 4xx with a code, nothing in the ledger, and the next request is fine."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from serving import Key, Served, code_of, serving

from hypercluster.domain import router
from hypercluster.domain.codes import CODES
from hypercluster.domain.route import Route
from hypercluster.http.routes_read import ROUTES as READS
from hypercluster.http.routes_read import ReadRoute

MIB = 1024 * 1024
HOTKEY = Key().hotkey

# A body of each kind that its model takes; every test below spoils it in one place.
GOOD: dict[str, dict[str, Any]] = {
    "provider.register": {"display_name": "x"},
    "provider.heartbeat": {},
    "node.register": {"gpu_model": "T4", "gpu_count": 1, "mem_gb": 2, "inventory": {"a": 1}, "ssh_endpoint": "h:22"},
    "node.heartbeat": {"node_id": "n"},
    "offer.create": {"node_ids": ["n"], "price_per_hour": 1, "max_lifetime_hours": 1, "gpu_count": 1},
    "offer.withdraw": {},
    "offer.rent": {"lifetime_hours": 1, "max_price": 1},
    "lease.terminate": {"reason": "x"},
    "job.submit": {
        "image_digest": "a@sha256:" + "a" * 64,
        "entrypoint": ["python"],
        "world_size": 1,
        "nnodes": 1,
        "nproc_per_node": 1,
        "resource": {"gpus": 1},
        "timeout_s": 1,
    },
    "job.cancel": {"reason": "x"},
    "result.post": {"attempt_no": 1, "status": "failed", "verified": False},
    "policy.adopt": {"policy": {"version": 2}},
    "metagraph.adopt": {"netuid": 1, "block": 1, "entries": [{"uid": 1, "hotkey": HOTKEY, "coldkey": HOTKEY}]},
    "operator.suspend": {"reason_code": "spam", "node_id": "n", "ban": False},
    "operator.readmit": {"reason_code": "ok", "node_id": "n"},
    "operator.drain": {"reason_code": "ok", "node_id": "n"},
    "operators.change": {"operators": [HOTKEY]},
    "clock.accept": {},
}

# Each is JSON text that stands for one value of the body.
SPOILED = (
    "1" + "0" * 30,
    str(2**63),
    "-1",
    "1e400",
    "0.1234567",
    "true",
    "null",
    '""',
    '"x"',
    '"' + "x" * 5000 + '"',
    '"\\u202e\\u0007"',
    "[]",
    "{}",
    "[[[[1]]]]",
)
NOT_JSON = {
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "lone surrogate": b'{"a": "\\ud800"}',
    "NUL": b'{"a": "\\u0000"}',
    "raw NUL": b'{"a": "\x00"}',
    "400 deep": b'{"a":' + b"[" * 400 + b"]" * 400 + b"}",
    "100000 deep": b"[" * 100_000,
    "duplicate keys": b'{"a": 1, "a": 2}',
    "deep duplicate keys": b'{"x": [{"a": 1, "a": 1}]}',
    "not UTF-8": b'{"a": "\xff"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "two texts": b"{}{}",
    "no end": b'{"a":',
    "gzip": b"\x1f\x8b\x08\x00",
    "form": b"a=1&b=2",
    "long number": b'{"a": ' + b"9" * 10_000 + b"}",
}
NOT_AN_OBJECT = (b"[]", b'"text"', b"1", b"true", b"[{}]")
BAD_IDS = ("unknown", "x" * 37, "x" * 300, "..", "a%00b", "%2e%2e%2f", "é", "a b", "-1", "1" + "0" * 30, "NaN", "*")


def target_of(path: str, value: str = "unknown") -> str:
    """The path with every parameter set to this value."""
    return "/".join(value if part.startswith("{") else part for part in path.split("/"))


class Watch:
    """Checks each answer, and that the ledger stands where it stood."""

    def __init__(self, served: Served) -> None:
        self.served, self.head, self.asked = served, served.service.head(), 0

    def check(self, answer: httpx2.Response, *context: object) -> None:
        self.asked += 1
        assert 400 <= answer.status_code < 500, (context, answer.status_code, answer.text[:300])
        code = code_of(answer)
        assert CODES[code].status == answer.status_code, (context, code)
        assert self.served.service.head() == self.head, (context, "left a row")

    async def finish(self) -> None:
        """The next request is served, and nothing has reached the ledger."""
        assert self.asked > 0
        assert self.served.service.store.ledger.size == self.head
        assert (await self.served.post("/v1/providers/register", {}, Key())).status_code == 200


def test_every_kind_has_a_good_body() -> None:
    assert set(GOOD) == {route.kind for route in router.ROUTES}
    for route in router.ROUTES:
        if route.kind != "policy.adopt":
            router.parse_body(route.body, json.dumps(GOOD[route.kind]))


def is_taken(route: Route, body: bytes) -> bool:
    """Whether the route's model takes the body."""
    try:
        router.parse_body(route.body, body.decode())
    except ValueError:
        return False
    return True


def by_kind(route: Route) -> str:
    return route.kind


@pytest.mark.parametrize("route", router.ROUTES, ids=by_kind)
def test_a_spoiled_field_of_a_write(tmp_path: Path, route: Route) -> None:
    """Signed by a key that nobody knows, so that even a decided refusal leaves no row."""

    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            watch = Watch(served)
            target = target_of(route.path)
            good = GOOD[route.kind]
            names = {*route.body.model_fields, *good}
            for name in sorted(names):
                for text in SPOILED:
                    body = json.dumps(good | {name: "@"}).replace('"@"', text).encode()
                    if route.kind == "provider.register" and is_taken(route, body):
                        continue  # anybody may register
                    watch.check(await served.send(route.method, target, body, key), name, text[:40])
            for missing in good if route.kind != "provider.register" else ():
                body = json.dumps({name: value for name, value in good.items() if name != missing}).encode()
                watch.check(await served.send(route.method, target, body, key), "without", missing)
            if not names:
                watch.check(await served.send(route.method, target, b'{"x": -1}', key))
            await watch.finish()

    asyncio.run(story())


@pytest.mark.parametrize("route", router.ROUTES, ids=by_kind)
def test_what_is_no_json_object_on_a_write(tmp_path: Path, route: Route) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            watch = Watch(served)
            target = target_of(route.path)
            for name, body in NOT_JSON.items():
                for signer in (key, None):
                    answer = await served.send(route.method, target, body, signer)
                    watch.check(answer, name)
                    assert code_of(answer) == "invalid_json", name
            for body in NOT_AN_OBJECT:
                answer = await served.send(route.method, target, body, key)
                watch.check(answer, body)
                assert code_of(answer) == "invalid_body", body
            empty = await served.send(route.method, target, b"", key)
            watch.check(empty, "empty")
            if route.body_required:
                assert code_of(empty) == "invalid_body"
                watch.check(await served.send(route.method, target, b"null", key), "null")
            unsigned = await served.send(route.method, target, json.dumps(GOOD[route.kind]).encode())
            watch.check(unsigned, "unsigned")
            assert code_of(unsigned) == "missing_auth_headers"
            await watch.finish()

    asyncio.run(story())


def test_ids_and_queries_on_writes(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            watch = Watch(served)
            for route in router.ROUTES:
                body = json.dumps(GOOD[route.kind]).encode()
                with_query = target_of(route.path) + "?x=1"
                watch.check(await served.send(route.method, with_query, body, key), route.kind, "query")
                if "{" in route.path:
                    for value in BAD_IDS:
                        target = target_of(route.path, value)
                        watch.check(await served.send(route.method, target, body, key), route.kind, value)
            await watch.finish()

    asyncio.run(story())


def test_too_much_on_writes_and_reads(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            watch = Watch(served)
            for route in router.ROUTES:
                target = target_of(route.path)
                large = await served.send(route.method, target, b" " * (route.body_max_bytes + 1), key)
                watch.check(large, route.kind)
                assert code_of(large) == "body_too_large"
            huge = await served.send("POST", "/v1/jobs", b" " * (64 * MIB), key)
            watch.check(huge, "64 MiB")
            for target in ("/v1/jobs", "/health", "/internal/v1/get_weights", "/nope"):
                answer = await served.raw(f"GET {target} HTTP/1.1\r\nX-Filler: ".encode() + b"x" * MIB)
                assert answer.startswith(b"HTTP/1.1 431 "), answer[:80]
            await watch.finish()

    asyncio.run(story())


@pytest.mark.parametrize("route", READS, ids=lambda route: route.path)
def test_nonsense_on_a_read(tmp_path: Path, route: ReadRoute) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            watch = Watch(served)
            for query in ("unknown=1", "&&", "a", "%ff=1", "x=%00", "=", "a=1&a=2", "%"):
                watch.check(await served.get(f"{target_of(route.path)}?{query}"), query)
            numbers = set(route.parameters) & {"after", "limit", "before", "offset", "rank"}
            for name in sorted(numbers):
                for value in ("", "-1", "1" + "0" * 30, str(2**63), "NaN", "1.5", "true", "%00", "１", "0x1", "+1"):
                    watch.check(await served.get(f"{target_of(route.path)}?{name}={value}"), name, value)
            for name in sorted(set(route.parameters) & {"since", "until", "require_ib", "type"}):
                for value in ("-1", "NaN", "%ff", "%00", "[]", "2026-99-01T00:00:00Z"):
                    watch.check(await served.get(f"{target_of(route.path)}?{name}={value}"), name, value)
            for name in route.parameters:
                twice = await served.get(f"{target_of(route.path)}?{name}=1&{name}=1")
                watch.check(twice, name, "twice")
            if "{" in route.path and not route.path.startswith("/v1/scores"):
                for value in BAD_IDS:
                    watch.check(await served.get(target_of(route.path, value), key), value)
            spoiled = key.headers("GET", route.path) | {"X-Signature": "ed25519:" + "00" * 64}
            watch.check(await served.http.get(served.url + target_of(route.path), headers=spoiled), "signature")
            await watch.finish()

    asyncio.run(story())


@pytest.mark.parametrize("name", ["X-Hotkey", "X-Signature", "X-Nonce", "X-Timestamp"])
def test_nonsense_in_the_signature_headers(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            watch = Watch(served)
            good = key.headers("POST", "/v1/providers/register", b"{}")
            values = (b"", b"\xff\xfe", b"x" * 5000, b"0" * 64, b"-1", b"NaN", b"1" + b"0" * 30, "é".encode(), b"a:b")
            for value in values:
                headers = {key.encode(): item.encode() for key, item in good.items()} | {name.encode(): value}
                url = served.url + "/v1/providers/register"
                answer = await served.http.post(url, content=b"{}", headers=list(headers.items()))
                watch.check(answer, name, value)
                assert answer.status_code == 401
            twice = [*good.items(), (name, good[name])]
            answer = await served.http.post(served.url + "/v1/providers/register", content=b"{}", headers=twice)
            watch.check(answer, name, "twice")
            assert code_of(answer) == "duplicate_auth_header"
            await watch.finish()

    asyncio.run(story())
