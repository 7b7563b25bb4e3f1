"""One rank of a preflight: joins the ring, takes its secret input, waits for the nonce, answers with a keyed digest.

Input: {"program", "rank", "world", "address", "buffer_bytes", "iterations", "io_timeout_s", "token"}; for the ring
{"next": [host, port]}; D frames with buffer_bytes * iterations bytes (digest-1: buffer_bytes); {"nonce": hex}.
Output: {"port", "bound": the address itself could be bound}, {"joined": true}, {"ready": true},
{"digest": hex, "us": own duration}; or {"error": what went wrong} instead of any of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import select
import socket
import sys
import threading
import time
from typing import Any

from hypercluster.effects.remote import wire


class _Inbox:
    """Frames from the control plane. This program ends at once when the control plane is gone."""

    def __init__(self) -> None:
        self._frames: queue.Queue[tuple[bytes, bytes]] = queue.Queue(64)
        threading.Thread(target=self._loop, daemon=True).start()

    def _loop(self) -> None:
        while True:
            frame = wire.receive(sys.stdin.buffer)
            if frame is None:
                os._exit(1)
            self._frames.put(frame)

    def json(self) -> dict[str, Any]:
        kind, payload = self._frames.get()
        if kind != b"J":
            raise ValueError("a J frame was expected")
        message: dict[str, Any] = json.loads(payload)
        return message

    def data(self, size: int) -> bytes:
        parts, have = [], 0
        while have < size:
            kind, payload = self._frames.get()
            if kind != b"D":
                raise ValueError("a D frame was expected")
            parts.append(payload)
            have += len(payload)
        return b"".join(parts)


def xor(left: bytes, right: bytes) -> bytes:
    """Of two equally long strings."""
    return (int.from_bytes(left, "little") ^ int.from_bytes(right, "little")).to_bytes(len(left), "little")


class Ring:
    """Connections to both neighbours. Every wait ends after `timeout_s` with OSError."""

    def __init__(self, rank: int, world: int, token: bytes, timeout_s: float) -> None:
        self._rank, self._world, self._token, self._timeout_s = rank, world, token, timeout_s
        self._listener = socket.socket()
        self._to = self._from = socket.socket()

    def listen(self, address: str) -> tuple[int, bool]:
        """(port, whether the address itself could be bound). Behind a translated address: all interfaces."""
        v6 = ":" in address
        self._listener = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET)
        self._listener.settimeout(self._timeout_s)
        try:
            self._listener.bind((address, 0))
            own = True
        except OSError:
            self._listener.bind(("::" if v6 else "0.0.0.0", 0))  # noqa: S104 - guarded by the token
            own = False
        self._listener.listen(16)
        return self._listener.getsockname()[1], own

    def join(self, host: str, port: int) -> None:
        """Connect to the next rank and accept the previous one, which must know the token."""
        self._to = socket.create_connection((host, port), self._timeout_s)
        self._to.sendall(self._hello(self._rank))
        limit = time.monotonic() + self._timeout_s
        expected = self._hello((self._rank - 1) % self._world)
        while time.monotonic() < limit:
            self._from, _ = self._listener.accept()
            self._from.settimeout(self._timeout_s)
            if self._read_hello() == expected:
                break
            self._from.close()
        else:
            raise OSError("the previous rank did not come")
        self._listener.close()
        for link in (self._to, self._from):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setblocking(False)

    def _hello(self, rank: int) -> bytes:
        return self._token + rank.to_bytes(4, "big")

    def _read_hello(self) -> bytes:
        data = b""
        try:
            while len(data) < len(self._token) + 4:
                part = self._from.recv(len(self._token) + 4 - len(data))
                if not part:
                    return b""
                data += part
        except OSError:
            return b""
        return data

    def exchange(self, out: bytes, size: int) -> bytes:
        """Send `out` to the next rank while receiving `size` bytes from the previous one."""
        view, got = memoryview(out), bytearray()
        while view or len(got) < size:
            readers = [self._from] if len(got) < size else []
            writers = [self._to] if view else []
            readable, writable, _ = select.select(readers, writers, [], self._timeout_s)
            if not readable and not writable:
                raise OSError("a neighbour is silent")
            if readable:
                part = self._from.recv(min(1 << 18, size - len(got)))
                if not part:
                    raise OSError("the previous rank hung up")
                got += part
            if writable:
                view = view[self._to.send(view[: 1 << 18]) :]
        return bytes(got)

    def all_reduce(self, data: bytes) -> bytes:
        """XOR of every rank's `data`: n - 1 steps that reduce, n - 1 that gather."""
        n = self._world
        edges = [index * len(data) // n for index in range(n + 1)]
        parts = [data[edges[index] : edges[index + 1]] for index in range(n)]
        for step in range(n - 1):
            target = (self._rank - step - 1) % n
            got = self.exchange(parts[(self._rank - step) % n], len(parts[target]))
            parts[target] = xor(parts[target], got)
        for step in range(n - 1):
            target = (self._rank - step) % n
            parts[target] = self.exchange(parts[(self._rank + 1 - step) % n], len(parts[target]))
        return b"".join(parts)


def digest_chain(nonce: bytes, data: bytes, iterations: int) -> bytes:
    """Each round needs the one before it."""
    state = nonce
    for _ in range(iterations):
        state = hashlib.sha256(state + data).digest()
    return state


def _ring(start: dict[str, Any], inbox: _Inbox) -> Ring:
    ring = Ring(start["rank"], start["world"], bytes.fromhex(start["token"]), start["io_timeout_s"])
    port, own = ring.listen(start["address"])
    wire.send(sys.stdout.buffer, wire.pack_json({"port": port, "bound": own}))
    host, next_port = inbox.json()["next"]
    ring.join(host, next_port)
    wire.send(sys.stdout.buffer, wire.pack_json({"joined": True}))
    return ring


def _take_part(start: dict[str, Any], inbox: _Inbox) -> dict[str, Any]:
    size, iterations = start["buffer_bytes"], start["iterations"]
    ring = _ring(start, inbox) if start["program"] == "ring-xor-1" else None
    data = inbox.data(size * iterations if ring else size)
    wire.send(sys.stdout.buffer, wire.pack_json({"ready": True}))
    nonce = bytes.fromhex(inbox.json()["nonce"])
    began = time.monotonic()
    if ring:
        chunks = [data[index * size : (index + 1) * size] for index in range(iterations)]
        result = b"".join([ring.all_reduce(chunk) for chunk in chunks])
    else:
        result = digest_chain(nonce, data, iterations)
    digest = hashlib.sha256(nonce + start["rank"].to_bytes(4, "big") + result).hexdigest()
    return {"digest": digest, "us": int((time.monotonic() - began) * 1_000_000)}


def main() -> None:
    inbox = _Inbox()
    try:
        answer = _take_part(inbox.json(), inbox)
    except (OSError, ValueError, KeyError) as error:
        answer = {"error": str(error)[:200]}
    wire.send(sys.stdout.buffer, wire.pack_json(answer))
