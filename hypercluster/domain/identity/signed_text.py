"""What a hotkey signs, and the headers that carry it.

Version 2 binds everything that could be redirected: eight lines joined by LF, no final LF:

    hypercluster-v2 / audience / METHOD / path?query / hotkey / nonce / unix seconds / SHA-256 of the body

Version 1, of the sim profile only, is the reference's `hypercluster:hotkey:nonce:seconds:sha256`. It binds neither
method nor path, so the server notes both as `METHOD path?query` in a line before it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hypercluster.domain.kernel import Refused

V2 = "hypercluster-v2"
V1 = "hypercluster"

AUDIENCE = r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}"
NAMES = ("hotkey", "signature", "nonce", "timestamp")

_HEADERS = {f"x-{prefix}{name}".encode(): name for prefix in ("", "hyper-") for name in NAMES}

_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_NONCE_V1 = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SECONDS = re.compile(r"[0-9]{10}")
_METHOD = re.compile(r"[A-Z]{3,10}")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/?-]*")
_AUDIENCE = re.compile(AUDIENCE)
_FREE_HOTKEY = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class SignedHeaders(NamedTuple):
    """The four values as they were sent; their grammar is not checked yet."""

    hotkey: str
    signature: str
    nonce: str
    timestamp: str


@dataclass(frozen=True, slots=True)
class SignedText:
    """The parts of a signed text. `path` includes the query; `seconds` is unix time; `body_sha256` lower-case hex.

    A version 1 text has no audience.
    """

    audience: str
    method: str
    path: str
    hotkey: str
    nonce: str
    seconds: int
    body_sha256: str
    version: str = V2

    def __str__(self) -> str:
        """What is recorded: in version 2 exactly what is signed."""
        if self.version == V1:
            return f"{self.method} {self.path}\n{self._old_text()}"
        lines = (
            self.version,
            self.audience,
            self.method,
            self.path,
            self.hotkey,
            self.nonce,
            f"{self.seconds:010d}",
            self.body_sha256,
        )
        return "\n".join(lines)

    def message(self) -> bytes:
        """The bytes that the key signs."""
        return (self._old_text() if self.version == V1 else str(self)).encode()

    def _old_text(self) -> str:
        return f"{V1}:{self.hotkey}:{self.nonce}:{self.seconds}:{self.body_sha256}"


class SignedTextError(ValueError):
    """A recorded text is not a signed text."""


def parse(text: str) -> SignedText:
    """The parts of a recorded text, of either version.

    Raises: SignedTextError
    """
    lines = text.split("\n")
    if len(lines) == 8 and lines[0] == V2:
        _, audience, method, path, hotkey, nonce, seconds, body = lines
        version = V2
    elif len(lines) == 2 and lines[1].startswith(V1 + ":") and lines[1].count(":") == 4:
        method, _, path = lines[0].partition(" ")
        _, hotkey, nonce, seconds, body = lines[1].split(":")
        version, audience = V1, ""
    else:
        raise SignedTextError("the text is neither of version 2 nor of version 1")
    if _SECONDS.fullmatch(seconds):
        found = SignedText(audience, method, path, hotkey, nonce, int(seconds), body, version)
        if _is_sound(found):
            return found
    raise SignedTextError("a part of the signed text is malformed")


def _is_sound(text: SignedText) -> bool:
    parts = (
        _METHOD.fullmatch(text.method),
        _PATH.fullmatch(text.path),
        _FREE_HOTKEY.fullmatch(text.hotkey),
        _SHA256.fullmatch(text.body_sha256),
        check_nonce(text.nonce, text.version) is None,
        text.version == V1 or _AUDIENCE.fullmatch(text.audience),
    )
    return all(parts)


def is_signed(pairs: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request claims to be signed: a bare hotkey header, as old clients send on reads, does not."""
    return any(_HEADERS.get(name.lower()) == "signature" for name, _ in pairs)


def read_headers(pairs: Iterable[tuple[bytes, bytes]]) -> SignedHeaders | Refused:
    """The four values from raw header pairs, under their plain names or their `X-Hyper-` names, or both if they agree.

    The second names exist because Base's proxy removes the first.
    """
    raw: dict[bytes, bytes] = {}
    for name, value in pairs:
        lower = name.lower()
        if lower not in _HEADERS:
            continue
        if lower in raw:
            return Refused("duplicate_auth_header", f"header {lower.decode()} came twice")
        raw[lower] = value.strip(b" \t")
    found: dict[str, str] = {}
    for lower, value in raw.items():
        text = value.decode("latin-1")  # anything outside ASCII fails the grammar later
        if text and found.setdefault(_HEADERS[lower], text) != text:
            return Refused("duplicate_auth_header", f"the two headers for the {_HEADERS[lower]} disagree")
    missing = [name for name in NAMES if name not in found]
    if missing:
        wanted = ", ".join(f"X-{name.capitalize()}" for name in missing)
        return Refused("missing_auth_headers", f"signed requests need {wanted}")
    return SignedHeaders(**found)


def check_nonce(nonce: str, version: str = V2) -> Refused | None:
    """Refuse a nonce outside the grammar of this version of the text."""
    if (_NONCE if version == V2 else _NONCE_V1).fullmatch(nonce):
        return None
    return Refused("invalid_nonce", "the nonce must be 16 to 64 characters of A-Z a-z 0-9 _ -")


def read_seconds(timestamp: str) -> int | Refused:
    """Unix seconds from exactly ten digits."""
    if _SECONDS.fullmatch(timestamp):
        return int(timestamp)
    return Refused("invalid_timestamp", "the timestamp must be ten digits of unix seconds")


def is_plain_path(path: str) -> bool:
    """Whether a path with its query can be signed: no percent-encoding, no blanks, visible ASCII only."""
    return _PATH.fullmatch(path) is not None


def is_free_hotkey(text: str) -> bool:
    """Whether the sim profile takes this text as the name of a hotkey."""
    return _FREE_HOTKEY.fullmatch(text) is not None
