"""uvicorn's HTTP/1.1 protocol with a bound on what may arrive before a request is known.

uvicorn waits for ever for the end of a header, and its parser keeps a header of any length. Both are bounded here,
before the application can see the request.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hypercluster.http.replies import json_bytes

HEAD_BYTES_MAX = 64 * 1024  # of a request that is not complete; the application's own limit is lower
LINGER_S = 5.0  # how long an answered request may go on sending its body
HELD_BYTES_MAX = 64 * 1024  # of an answer, before it is handed on within the same turn of the event loop


class OneWrite(asyncio.Transport):
    """Sends what is written in one turn of the event loop with one system call.

    uvicorn writes the head and the body of an answer apart; each write would be a call of its own and wake the client.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held: list[bytes | bytearray | memoryview] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > HELD_BYTES_MAX:  # the transport must see a long answer to slow it down
            self._flush()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _flush(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if held and not self._transport.is_closing():
            self._transport.write(b"".join(held))


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Made by `guarded`, which sets the limits."""

    head_s: float = 15.0
    connections_max: int = 1024

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = True
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.close()
            return
        _send_at_once(transport)
        self.transport = OneWrite(transport, self.loop)
        self._arm(self.head_s, self._head_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._timer is None:
                self._arm(self.head_s, self._head_too_slow)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse(431, "headers_too_large", "the request headers exceed the limit")

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._disarm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_head and not self.transport.is_closing():  # the rest of a body that nobody reads
            self._arm(LINGER_S, self.transport.close)

    def _arm(self, seconds: float, action: Callable[[], object]) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, action)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_too_slow(self) -> None:
        if self._head_bytes == 0:
            self.transport.close()
        else:
            self._refuse(408, "request_timeout", "the request headers took too long to arrive")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer without the application. What the client still sends is dropped until it has read the answer."""
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # another request of this connection is being answered
            return
        body = json_bytes({"detail": {"code": code, "message": message, "request_id": "-"}})
        head = (
            f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        self._arm(LINGER_S, self.transport.close)


def _send_at_once(transport: asyncio.Transport) -> None:
    """Switch Nagle's algorithm off: asyncio does so only for sockets that were made with an explicit protocol number.

    An answer in several writes would else wait up to 40 ms for the client's kernel before its second one.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def guarded(head_s: float, connections: int) -> type[GuardedProtocol]:
    """The protocol with these limits: seconds for a header, connections at once."""
    return type("Guarded", (GuardedProtocol,), {"head_s": head_s, "connections_max": connections})
