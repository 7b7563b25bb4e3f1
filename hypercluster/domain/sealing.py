"""Private fields of a body -> commitments. What is stored for ever holds the commitment, never the value.

Each field has its own salt, HMAC-SHA256(the body's salt, field); the commitment is `hmac-sha256:` and the hex of
HMAC-SHA256(that salt, value). So equal values of two fields cannot be told to be equal, and who opens one field to
somebody opens no other. Members of a private object are named `<field>.<key>`.
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import NamedTuple

from events.hashing import commit_value

SALT_FIELD = "private_salt"
SALT_BYTES_MIN = 16
SALT_BYTES_MAX = 64

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")


class SealingError(ValueError):
    """A private field cannot be sealed. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Opening(NamedTuple):
    """What opens one commitment: `commitment == events.hashing.commit_value(salt, value)`."""

    commitment: str
    field: str
    value: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """public: the body with commitments in place of private values and without the salt.

    openings: one for each value that was replaced.
    """

    public: dict[str, object]
    openings: list[Opening]


def seal(body: dict[str, object], private: tuple[str, ...], salt: bytes) -> Sealed:
    """Replace the values of the private fields. An absent or null field stays as it is. salt: at least 16 bytes.

    Raises: SealingError when a private value is neither text nor an object of texts.
    """
    openings: list[Opening] = []

    def close(field: str, value: object) -> str:
        if not isinstance(value, str):
            raise SealingError(field, f"{field} must be text")
        own_salt = salt_of_field(salt, field)
        commitment = commit_value(own_salt, value)
        openings.append(Opening(commitment, field, value, own_salt))
        return commitment

    public = {key: value for key, value in body.items() if key != SALT_FIELD}
    for field in private:
        match public.get(field):
            case None:
                continue
            case dict() as members:
                public[field] = {key: close(f"{field}.{key}", value) for key, value in members.items()}
            case value:
                public[field] = close(field, value)
    return Sealed(public, openings)


def body_field(body_sha256: str) -> str:
    """The name under which the signed body itself is kept beside its private values."""
    return f"body:{body_sha256}"


def body_opening(body: bytes, salt: bytes) -> Opening:
    """The whole body as it was signed, so that whoever holds the private file can check the signature's hash."""
    text, field = body.decode(), body_field(hashlib.sha256(body).hexdigest())
    own_salt = salt_of_field(salt, field)
    return Opening(commit_value(own_salt, text), field, text, own_salt)


def salt_of_field(salt: bytes, field: str) -> bytes:
    """The 32-byte salt of one field of a body."""
    return hmac.digest(salt, field.encode(), "sha256")


def salt_of(body: dict[str, object]) -> bytes | None:
    """The client's own salt, given as hex or base64url of 16 to 64 bytes; None when it gave none.

    An even number of hex digits is read as hex.

    Raises: SealingError
    """
    text = body.get(SALT_FIELD)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > 2 * SALT_BYTES_MAX:
        raise SealingError(SALT_FIELD, _SALT_RULE)
    salt = _decode(text)
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise SealingError(SALT_FIELD, _SALT_RULE)
    return salt


def lacks_salt(body: dict[str, object], profile: str) -> bool:
    """Whether production must refuse the body with `private_salt_required`: it sets env and brings no salt."""
    return profile == "production" and bool(body.get("env")) and body.get(SALT_FIELD) is None


_SALT_RULE = f"{SALT_FIELD} must be hex or base64url of {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes"


def _decode(text: str) -> bytes:
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if not _BASE64URL.fullmatch(text):
        raise SealingError(SALT_FIELD, _SALT_RULE)
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except binascii.Error as error:
        raise SealingError(SALT_FIELD, _SALT_RULE) from error
