"""The event stream and the event list, on a real socket: order, filters, resuming, slow clients, shutdown."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from serving import Key, Served, code_of, serving

from hypercluster.http.event_query import EventFilter
from hypercluster.http.limits import Limits
from hypercluster.http.stream import EventStream


@asynccontextmanager
async def stream(served: Served, target: str, **headers: str) -> AsyncIterator[AsyncIterator[str]]:
    """The blocks of a stream, without the blank line that ends each."""
    async with served.http.stream("GET", served.url + target, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")

        async def blocks() -> AsyncIterator[str]:
            text = ""
            async for part in response.aiter_text():
                text += part
                while "\n\n" in text:
                    block, text = text.split("\n\n", 1)
                    yield block

        yield blocks()


async def next_event(blocks: AsyncIterator[str]) -> dict[str, str]:
    """The next block that is an event, as its fields."""
    async with asyncio.timeout(5):
        async for block in blocks:
            if block.startswith("id:"):
                return dict(line.split(": ", 1) for line in block.split("\n"))
    raise AssertionError("the stream ended")


async def register(served: Served, count: int) -> None:
    for _ in range(count):
        answer = await served.post("/v1/providers/register", {}, Key())
        assert answer.status_code == 200, answer.text


def test_events_come_in_order_as_they_are_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            head = served.service.head()
            async with stream(served, "/v1/events/stream") as blocks:
                assert await anext(blocks) == "retry: 2000"
                await register(served, 3)
                for number in range(head + 1, head + 4):
                    event = await next_event(blocks)
                    data = json.loads(event["data"])
                    assert (int(event["id"]), event["event"]) == (number, "provider.registered")
                    assert data["seq"] == number and data["data"]["hotkey"] == data["actor"]

    asyncio.run(story())


def test_a_stream_resumes_after_the_last_event_id(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            await register(served, 2)
            async with stream(served, "/v1/events/stream?after=1", **{"Last-Event-ID": "3"}) as blocks:
                assert (await next_event(blocks))["id"] == "4"
            async with stream(served, "/v1/events/stream?after=1") as blocks:
                assert [(await next_event(blocks))["id"] for _ in range(4)] == ["2", "3", "4", "5"]
            beyond = await served.get("/v1/events/stream?after=99")
            assert (beyond.status_code, code_of(beyond)) == (422, "invalid_query")

    asyncio.run(story())


def test_a_stream_filters_by_type_hotkey_and_stream(tmp_path: Path) -> None:
    async def story() -> None:
        key = Key()
        async with serving(tmp_path) as served:
            await register(served, 1)
            made = (await served.post("/v1/providers/register", {}, key)).json()
            await served.post("/v1/nodes", {"gpu_model": "T4", "gpu_count": 1}, key)
            for query, expected in (
                ("type=node.*", "node.registered"),
                (f"hotkey={key.hotkey}", "provider.registered"),
                (f"stream=provider/{made['id']}", "provider.registered"),
            ):
                async with stream(served, f"/v1/events/stream?after=0&{query}") as blocks:
                    event = await next_event(blocks)
                    assert event["event"] == expected
                    assert json.loads(event["data"])["actor"] == key.hotkey

    asyncio.run(story())


def test_a_quiet_stream_sends_heartbeats(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, limits=Limits(stream_heartbeat_s=0.1, request_s=0.5)) as served:
            head = served.service.head()
            async with stream(served, "/v1/events/stream") as blocks:
                seen = [await anext(blocks) for _ in range(9)]
            assert seen[1:] == [f": {head}"] * 8, "and it outlives the time limit of a request"

    asyncio.run(story())


def test_a_client_that_falls_behind_is_told_where_to_resume(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, limits=Limits(stream_lag_events=2)) as served:
            shared = served.server._application.shared
            parts = EventStream(shared, EventFilter(), served.service.head()).parts()
            assert await anext(parts) == b"retry: 2000\n\n"
            reading = asyncio.ensure_future(anext(parts))
            await asyncio.sleep(0.05)
            await register(served, 1)
            first = await reading
            number = int(first.split(b"\n")[0].removeprefix(b"id: "))
            await register(served, 5)
            rest = [part async for part in parts]
            assert rest == [f": too slow, resume after {number}\n\n".encode()]

    asyncio.run(story())


def test_streams_at_once_are_bounded_and_given_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, limits=Limits(streams=1)) as served:
            async with stream(served, "/v1/events/stream") as blocks:
                await anext(blocks)
                refused = await served.get("/v1/events/stream")
                assert (refused.status_code, code_of(refused)) == (429, "overloaded")
            async with asyncio.timeout(5):
                while served.server._application.shared.streams:
                    await asyncio.sleep(0.01)
            async with stream(served, "/v1/events/stream") as blocks:
                assert await anext(blocks) == "retry: 2000"

    asyncio.run(story())


SERVE = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[3]]
from serving import settings_of
from hypercluster.http.app import Application
from hypercluster.http.server import make_server
from hypercluster.runtime.start import running
import socket

async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    async with running(settings_of(Path(sys.argv[1]))) as service:
        print(listener.getsockname()[1], flush=True)
        await make_server(Application(service), "127.0.0.1", 0).serve([listener])

asyncio.run(main())
"""


def test_sigterm_ends_streams_with_a_word_and_the_process_at_once(tmp_path: Path) -> None:
    support, root = Path(__file__).parents[1] / "support", Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path), str(support), str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        port = int(next(line for line in lines if line.strip().isdigit()))

        async def watch() -> list[str]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/events/stream?after=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"id: 3\n")
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(8):
                rest = await reader.read()
            writer.close()
            return rest.decode().splitlines()

        started = time.monotonic()
        rest = asyncio.run(watch())
        assert ": the server stops, resume after 3" in rest
        assert rest[-2:] == ["0", ""], "the answer is complete"
        _, errors = process.communicate(timeout=8)
        assert time.monotonic() - started < 8, "before the graceful time-out"
        assert process.returncode in (0, -signal.SIGTERM), errors
        assert "Traceback" not in errors, errors
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_list_pages_and_filters(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            await register(served, 7)
            head = served.service.head()
            numbers: list[int] = []
            after: int | None = 0
            while after is not None:
                page = (await served.get(f"/v1/events?limit=3&after={after}")).json()
                numbers += [item["seq"] for item in page["items"]]
                after = page["next"]
            assert numbers == list(range(1, head + 1))

            async def seqs(query: str) -> list[int]:
                return [item["seq"] for item in (await served.get(f"/v1/events?{query}")).json()["items"]]

            assert await seqs("after=2&before=5") == [3, 4]
            assert await seqs("type=provider.*&limit=2") == [4, 5]
            assert await seqs("type=policy.adopted,rules.activated") == [2, 3]
            assert await seqs("type=provider.*&hotkey=nobody") == []
            middle = (await served.get("/v1/events/5")).json()["at"]
            assert await seqs(f"since={middle}") == list(range(5, head + 1))
            assert await seqs(f"until={middle}") == [1, 2, 3, 4]
            unknown = await served.get("/v1/events?type=no.such")
            assert (unknown.status_code, code_of(unknown)) == (422, "invalid_query")
            missing = await served.get(f"/v1/events/{head + 1}")
            assert (missing.status_code, code_of(missing)) == (404, "event_not_found")

    asyncio.run(story())


def test_a_rare_type_is_found_in_bounded_steps(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            await register(served, 130)
            key = Key()
            await served.post("/v1/providers/register", {}, key)
            page = (await served.get(f"/v1/events?type=provider.registered&hotkey={key.hotkey}&limit=1")).json()
            assert [item["actor"] for item in page["items"]] == [key.hotkey]

    asyncio.run(story())


def test_the_entry_of_an_event_is_the_stored_leaf(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path) as served:
            answer = await served.get("/v1/events/2")
            leaf = served.service.events([2])[0].entry
            assert b'"entry":' + leaf + b"}" in answer.content

    asyncio.run(story())
