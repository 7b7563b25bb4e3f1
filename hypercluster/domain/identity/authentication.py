"""The whole check of a signed request, outside the writer: who asks, and did this key sign exactly this? Pure."""

import base64
from collections.abc import Iterable
from typing import NamedTuple

from hypercluster.domain.identity import signatures, ss58
from hypercluster.domain.identity.signed_text import (
    V1,
    V2,
    SignedHeaders,
    SignedText,
    check_nonce,
    is_free_hotkey,
    is_plain_path,
    read_headers,
    read_seconds,
)
from hypercluster.domain.kernel import US_PER_S, Refused

SIM = "sim"


class Authenticated(NamedTuple):
    """A request whose signature holds.

    scheme: sr25519 | ed25519 | hmac. text: what `CommandRecord.text` keeps; its SHA-256 is the command's digest.
    signature: base64 of the signature's bytes, as the record keeps it. timestamp: unix seconds, as signed.
    """

    hotkey: str
    scheme: str
    nonce: str
    text: str
    signature: str
    timestamp: int


def authenticate(  # noqa: PLR0913 - everything that a signature binds, and what it is judged by
    headers: Iterable[tuple[bytes, bytes]],
    method: str,
    path_qs: str,
    body_sha256: str,
    *,
    now_us: int,
    audience: str,
    window_s: int,
    profile: str,
    shared_token: str | None = None,
) -> Authenticated | Refused:
    """Check a request's signature headers.

    headers: raw pairs as they arrived. path_qs: path with query as received, relative to the challenge's root.
    body_sha256: lower-case hex over the raw body. now_us: when the headers arrived. profile: production | sim.
    shared_token: the key of HMAC signatures; used in the sim profile only.
    """
    given = read_headers(headers)
    if isinstance(given, Refused):
        return given
    if not is_plain_path(path_qs):
        return Refused("invalid_path", "signed paths hold visible ASCII without percent-encoding")
    scheme, signature = _signature(given.signature)
    version = V1 if scheme == signatures.HMAC and profile == SIM and shared_token else V2
    refused = _check_grammar(given, version) or _check_time(given.timestamp, now_us, window_s)
    if refused is not None:
        return refused
    text = SignedText(
        audience="" if version == V1 else audience,
        method=method,
        path=path_qs,
        hotkey=given.hotkey,
        nonce=given.nonce,
        seconds=int(given.timestamp),
        body_sha256=body_sha256,
        version=version,
    )
    if version == V1:
        holds = signatures.verify_hmac(shared_token or "", text.message(), signature)
    else:
        holds = scheme != signatures.HMAC and check_text(text, scheme, signature)
    if not holds:
        return _invalid_signature(text)
    encoded = base64.b64encode(signature).decode()
    return Authenticated(given.hotkey, scheme, given.nonce, str(text), encoded, text.seconds)


def check_text(text: SignedText, scheme: str, signature: bytes) -> bool:
    """Whether the hotkey named in a version 2 text signed it; on the server and in an audit."""
    try:
        key = ss58.decode(text.hotkey)
    except ss58.Ss58Error:
        return False
    return signatures.verify(scheme, key, text.message(), signature)


def is_hotkey(text: str, profile: str) -> bool:
    """Whether this names a hotkey: a canonical address, or in the sim profile any short plain word."""
    if profile == SIM and is_free_hotkey(text):
        return True
    try:
        ss58.decode(text)
    except ss58.Ss58Error:
        return False
    return True


def _signature(header: str) -> tuple[str, bytes]:
    """Scheme and bytes; no bytes for what is no signature, so that the other headers are judged first."""
    try:
        return signatures.parse_signature(header)
    except signatures.SignatureError:
        return signatures.SR25519, b""


def _check_grammar(given: SignedHeaders, version: str) -> Refused | None:
    if version == V1:
        if not is_free_hotkey(given.hotkey):
            return Refused("invalid_hotkey", "a hotkey of the sim profile is 1 to 64 characters of A-Z a-z 0-9 . _ -")
    else:
        try:
            ss58.decode(given.hotkey)
        except ss58.Ss58Error as error:
            return Refused("invalid_hotkey", str(error))
    return check_nonce(given.nonce, version)


def _check_time(timestamp: str, now_us: int, window_s: int) -> Refused | None:
    seconds = read_seconds(timestamp)
    if isinstance(seconds, Refused):
        return seconds
    now_s = now_us // US_PER_S
    skew_s = seconds - now_s
    if abs(skew_s) <= window_s:
        return None
    side = "ahead of" if skew_s > 0 else "behind"
    hint = f"server time {now_s}; the request's time is {abs(skew_s)} s {side} it; window {window_s} s either way"
    return Refused("stale_signature", "the timestamp is outside the window", hint=hint)


def _invalid_signature(text: SignedText) -> Refused:
    if text.version == V1:
        return Refused("invalid_signature", "the signature does not verify for this request")
    hint = f"this server expects a {V2} text for audience {text.audience}: {text.method} {text.path}"
    return Refused("invalid_signature", "the signature does not verify for this request", hint=hint)
