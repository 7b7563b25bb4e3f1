"""Frames between the control plane and a program on a node, over standard input and output.

A frame is one byte of kind, four bytes of length (big-endian), then the payload. Kinds: J a JSON object, D raw
data of any meaning, O and E what a rank wrote to its standard output and error.
"""

from __future__ import annotations

import json
import struct
import threading
from typing import Any, BinaryIO, Callable  # noqa: UP035 - Python 3.8 has no usable collections.abc.Callable

HEADER = struct.Struct(">cI")
PAYLOAD_MAX = 64 * 1024

_writing = threading.Lock()


def pack(kind: bytes, payload: bytes) -> bytes:
    """One frame."""
    return HEADER.pack(kind, len(payload)) + payload


def pack_json(message: dict[str, Any]) -> bytes:
    """One J frame."""
    return pack(b"J", json.dumps(message).encode())


def send(stream: BinaryIO, frame: bytes) -> None:
    """Write a whole frame; threads of one program may call it at the same time."""
    with _writing:
        stream.write(frame)
        stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    """(kind, payload) of the next frame, or None at the end of the input."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    kind, size = HEADER.unpack(header)
    payload = stream.read(size)
    return (kind, payload) if len(payload) == size else None


def receive_json(stream: BinaryIO) -> dict[str, Any]:
    """The next frame, which must be a J frame. Raises EOFError at the end of the input."""
    frame = receive(stream)
    if frame is None:
        raise EOFError
    kind, payload = frame
    if kind != b"J":
        raise ValueError("a J frame was expected")
    message: dict[str, Any] = json.loads(payload)
    return message


def listen(stream: BinaryIO, on_message: Callable[[dict[str, Any]], None], on_end: Callable[[], None]) -> None:
    """Hand every further J frame to `on_message` from a thread of its own; `on_end` when the control plane is gone."""

    def loop() -> None:
        while True:
            try:
                message = receive_json(stream)
            except (EOFError, ValueError, OSError):
                on_end()
                return
            on_message(message)

    threading.Thread(target=loop, daemon=True).start()
