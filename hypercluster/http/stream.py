"""The event stream: server-sent events of what is committed, resumable from any number.

A stream pulls: it holds one page of events at a time, however far behind its client is. A client that cannot keep up
with the ledger once it was level is closed with a comment that names the number to resume from.
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.types import Receive, Scope, Send

from events.envelope import Recorded
from hypercluster.http.errors import Problem
from hypercluster.http.event_query import EventFilter
from hypercluster.http.replies import json_bytes
from hypercluster.http.scope import lift_deadline
from hypercluster.http.shared import Shared
from hypercluster.http.views.events import event_view

PAGE = 100
RETRY_MS = 2000
STALL_S = 30.0  # a client that takes no byte for so long is let go

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """One open stream, an ASGI answer. after: the number of the last event that the client has.

    Raises: Problem (overloaded) when too many streams are open
    """

    def __init__(self, shared: Shared, wanted: EventFilter, after: int) -> None:
        if shared.streams >= shared.limits.streams:
            raise Problem("overloaded", "too many event streams are open", hint="read /v1/events instead")
        self._shared, self._wanted, self._after = shared, wanted, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lift_deadline(scope)
        self._shared.streams += 1
        tasks = [asyncio.create_task(self._feed(send)), asyncio.create_task(_until_gone(receive))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._shared.streams -= 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async for part in self.parts():
            try:
                async with asyncio.timeout(STALL_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            except TimeoutError:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def parts(self) -> AsyncIterator[bytes]:
        """What goes over the wire, piece by piece."""
        service, limits = self._shared.service, self._shared.limits
        position, is_level = self._after, False
        yield f"retry: {RETRY_MS}\n\n".encode()
        while not self._ends():
            if is_level and service.head() - position > limits.stream_lag_events:
                yield f": too slow, resume after {position}\n\n".encode()
                return
            events = service.event_page(position, PAGE)
            for recorded in events:
                position = recorded.pos
                if self._wanted.passes(recorded):
                    yield frame(recorded)
            if events:
                await asyncio.sleep(0)
                continue
            is_level = True
            await self._wait(limits.stream_heartbeat_s, position)
            if service.head() <= position and not self._ends():
                yield f": {position}\n\n".encode()
        yield f": the server stops, resume after {position}\n\n".encode()

    def _ends(self) -> bool:
        return self._shared.stop.is_set() or self._shared.service.stopping.is_set()

    async def _wait(self, timeout_s: float, after: int) -> None:
        """Until there is a new event, the server stops, or the time is over."""
        tasks = [
            asyncio.create_task(self._shared.service.wait_for_event(timeout_s, after)),
            asyncio.create_task(self._shared.stop.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def frame(recorded: Recorded) -> bytes:
    """One event as a server-sent event: id, type, JSON on one line."""
    head = f"id: {recorded.pos}\nevent: {recorded.envelope.type}\ndata: ".encode()
    return head + json_bytes(event_view(recorded)) + b"\n\n"


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
