"""Answers as bytes."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

_encode = msgspec.json.Encoder().encode


def json_bytes(value: object) -> bytes:
    """Compact JSON; a `msgspec.Raw` inside stands as it is."""
    return _encode(value)


def json_reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer that no cache keeps."""
    every = {"Cache-Control": "no-store", **(headers or {})}
    return Response(json_bytes(value), status, every, media_type="application/json")


def raw_json(text: str | None) -> Any:
    """Stored JSON text, to stand in an answer as it is; None stays None."""
    return None if text is None else msgspec.Raw(text.encode())
