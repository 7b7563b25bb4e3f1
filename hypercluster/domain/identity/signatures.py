"""Signatures of hotkeys. A missing library fails here at import, never as an invalid signature."""

import hmac
import re

import sr25519
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from hypercluster.domain.identity.ss58 import is_forgeable

SR25519 = "sr25519"
ED25519 = "ed25519"
HMAC = "hmac"  # sim profile only: the reference's shared token

SIGNATURE_BYTES = 64

_ED25519_PREFIX = "ed25519:"
_HMAC_PREFIX = "sha256="
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_HMAC_HEX = re.compile(r"[0-9a-f]{64}")


class SignatureError(ValueError):
    """The header holds no signature in a known form."""


def parse_signature(header: str) -> tuple[str, bytes]:
    """Scheme and signature bytes of a header: 64 bytes, or the 32 of an HMAC.

    `ed25519:` selects ed25519; otherwise hex with or without 0x is sr25519, and 64 lower-case hex digits with or
    without `sha256=` an HMAC. A 65-byte MultiSignature loses its leading 01.

    Raises: SignatureError
    """
    plain = header.removeprefix(_HMAC_PREFIX)
    if _HMAC_HEX.fullmatch(plain):
        return HMAC, bytes.fromhex(plain)
    scheme = ED25519 if header.startswith(_ED25519_PREFIX) else SR25519
    digits = header.removeprefix(_ED25519_PREFIX).removeprefix("0x")
    if not _HEX.fullmatch(digits) or len(digits) > 2 * (SIGNATURE_BYTES + 1):
        raise SignatureError("the signature must be hex of 64 bytes")
    raw = bytes.fromhex(digits)
    if scheme == SR25519 and len(raw) == SIGNATURE_BYTES + 1 and raw[0] == 1:
        raw = raw[1:]
    if len(raw) != SIGNATURE_BYTES:
        raise SignatureError("the signature must be hex of 64 bytes")
    return scheme, raw


def verify(scheme: str, key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the 32-byte key signed the message, as it is or wrapped in `<Bytes>` as wallet front ends do.

    Raises: ValueError for a scheme that is not sr25519 or ed25519.
    """
    if scheme not in _VERIFIERS:
        raise ValueError(f"no signature scheme {scheme}")
    if len(key) != 32 or len(signature) != SIGNATURE_BYTES or is_forgeable(key):
        return False
    check = _VERIFIERS[scheme]
    return check(key, message, signature) or check(key, b"<Bytes>" + message + b"</Bytes>", signature)


def verify_hmac(token: str, message: bytes, signature: bytes) -> bool:
    """Whether a holder of the shared token made this HMAC-SHA256. Whose hotkey it is, it cannot say."""
    return hmac.compare_digest(hmac.digest(token.encode(), message, "sha256"), signature)


def _sr25519(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        return bool(sr25519.verify(signature, message, key))
    except ValueError:  # a key or scalar that does not decode, or a missing marker bit
        return False


def _ed25519(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        VerifyKey(key).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


_VERIFIERS = {SR25519: _sr25519, ED25519: _ed25519}
