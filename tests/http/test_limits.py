"""Bytes, time and number of requests: what a stranger can hold of the server, over real sockets."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from serving import TOKEN, Key, Served, code_of, serving

from hypercluster.http.limits import Limits

MIB = 1024 * 1024


def problem(answer: bytes) -> tuple[int, Any]:
    """Status and code of a raw HTTP answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["detail"]["code"]


async def alive(served: Served) -> None:
    assert (await served.get("/health")).status_code == 200


def test_a_declared_length_beyond_the_limit_is_413(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            for size, expected in ((256 * 1024, 422), (256 * 1024 + 1, 413)):
                answer = await served.send("POST", "/v1/providers/register", b"{" + b" " * (size - 1), key)
                assert answer.status_code == expected, answer.text
            results = await served.send("POST", "/v1/jobs/x/results", b"{" + b" " * (MIB - 1), key)
            assert code_of(results) == "invalid_json", "results may have 1 MiB"
            results = await served.send("POST", "/v1/jobs/x/results", b"{" + b" " * MIB, key)
            assert code_of(results) == "body_too_large"
            await alive(served)

    asyncio.run(story())


def test_chunked_bodies_are_counted(tmp_path: Path) -> None:
    async def story() -> None:
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        async with serving(tmp_path) as served:
            assert problem(await served.raw(head + chunk * 5 + b"0\r\n\r\n")) == (413, "body_too_large")
            assert problem(await served.raw(head + chunk * 4 + b"0\r\n\r\n")) == (422, "invalid_json")
            await alive(served)

    asyncio.run(story())


def test_64_mib_are_refused_and_the_client_reads_the_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            answer = await served.send("POST", "/v1/jobs", b"x" * (64 * MIB), Key())
            assert (answer.status_code, code_of(answer)) == (413, "body_too_large")
            await alive(served)

    asyncio.run(story())


def test_headers_beyond_the_limit_are_431(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            answer = await served.get("/v1/offers", **{"X-Filler": "x" * (33 * 1024)})
            assert (answer.status_code, code_of(answer)) == (431, "headers_too_large")
            assert (await served.get("/v1/offers", **{"X-Filler": "x" * (30 * 1024)})).status_code == 200
            huge = await served.raw(b"GET / HTTP/1.1\r\nX-Filler: " + b"x" * MIB)
            assert problem(huge) == (431, "headers_too_large")
            many = await served.raw(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 30_000)
            assert problem(many) == (431, "headers_too_large")
            await alive(served)

    asyncio.run(story())


def test_a_header_that_does_not_end_is_408(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, limits=Limits(idle_s=0.3)) as served:
            started = time.monotonic()
            assert problem(await served.raw(b"GET /v1/offers HTTP/1.1\r\nHost: x\r\n")) == (408, "request_timeout")
            assert await served.raw(b"") == b"", "a silent connection is closed without a word"
            assert time.monotonic() - started < 12
            await alive(served)

    asyncio.run(story())


def test_a_body_that_stops_is_408_and_so_is_one_that_drips(tmp_path: Path) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"

    async def drip(served: Served) -> bytes:
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(head)
        reading = asyncio.create_task(reader.read())
        for _ in range(100):
            if reading.done():
                break
            writer.write(b" ")
            await asyncio.sleep(0.05)
        writer.close()
        return await reading

    async def story() -> None:
        async with serving(tmp_path, limits=Limits(idle_s=0.3, request_s=1.0)) as served:
            assert problem(await served.raw(head + b"{")) == (408, "request_timeout")
            started = time.monotonic()
            assert problem(await drip(served)) == (408, "request_timeout")
            assert time.monotonic() - started < 3
            await alive(served)

    asyncio.run(story())


def test_too_many_requests_at_once_are_429_but_the_master_is_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, limits=Limits(requests_at_once=2, idle_s=5)) as served:
            pending = [await asyncio.open_connection(*served.address) for _ in range(2)]
            for _, writer in pending:
                writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
            await asyncio.sleep(0.2)
            refused = await served.get("/v1/offers")
            assert (refused.status_code, code_of(refused)) == (429, "overloaded")
            headers = {"Authorization": f"Bearer {TOKEN}", "X-Base-Challenge-Slug": "hypercluster"}
            assert (await served.get("/internal/v1/get_weights", **headers)).status_code == 200
            await alive(served)
            for _, writer in pending:
                writer.close()
            await asyncio.sleep(0.2)
            assert (await served.get("/v1/offers")).status_code == 200

    asyncio.run(story())


def test_connections_beyond_the_limit_are_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, limits=Limits(connections=3)) as served:
            held = [await asyncio.open_connection(*served.address) for _ in range(3)]
            await asyncio.sleep(0.1)
            assert await served.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", read_s=2) == b""
            for _, writer in held:
                writer.close()
            await asyncio.sleep(0.1)
            await alive(served)

    asyncio.run(story())


def test_garbage_on_the_socket_is_400_and_harms_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            for data in (
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n",
                b"GET \xff\xfe HTTP/1.1\r\n\r\n",
                b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
                b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            ):
                answer = await served.raw(data)
                assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), data
                await alive(served)

    asyncio.run(story())


def test_no_redirects_no_compression_and_json_for_every_error(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            for target in ("/v1/offers/", "/v1/jobs/x/", "/health/", "/nope", "/v1//offers"):
                answer = await served.get(target)
                assert (answer.status_code, code_of(answer)) == (404, "not_found"), target
            for method, target in (("PUT", "/v1/offers"), ("DELETE", "/v1/events"), ("POST", "/health")):
                answer = await served.send(method, target)
                assert (answer.status_code, code_of(answer)) == (405, "method_not_allowed")
                assert "GET" in answer.headers["allow"]
            encoded = await served.get("/v1/offers/%41")
            assert (encoded.status_code, code_of(encoded)) == (422, "invalid_path")
            plain = await served.get("/v1/policy", **{"Accept-Encoding": "gzip, br"})
            assert "content-encoding" not in plain.headers

    asyncio.run(story())


def test_small_answers_do_not_wait_for_the_clients_kernel(tmp_path: Path) -> None:
    """Head and body are two writes: with Nagle's algorithm each answer on a kept connection takes 40 ms."""

    async def story() -> None:
        async with serving(tmp_path) as served:
            await alive(served)
            times = []
            for _ in range(15):
                started = time.monotonic()
                await alive(served)
                times.append(time.monotonic() - started)
            assert sorted(times)[7] < 0.03, times

    asyncio.run(story())
