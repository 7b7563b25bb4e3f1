"""Grammar of what a provider says about reaching a node: endpoint, user, host key. Pure: nothing is resolved here."""

import base64
import binascii
import ipaddress
import re

ENDPOINT_CHARS_MAX = 512
RSA_BITS_MIN = 2048

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_ENDPOINT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9._-]{1,253}))(?::(?P<port>[0-9]{1,5}))?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_CURVES = {
    "ecdsa-sha2-nistp256": (b"nistp256", 65),
    "ecdsa-sha2-nistp384": (b"nistp384", 97),
    "ecdsa-sha2-nistp521": (b"nistp521", 133),
}


def is_endpoint(text: str) -> bool:
    """Whether the text is `host`, `host:port`, `[IPv6]` or `[IPv6]:port`."""
    found = _ENDPOINT.fullmatch(text) if len(text) <= ENDPOINT_CHARS_MAX else None
    if found is None:
        return False
    if found["port"] is not None and not 1 <= int(found["port"]) <= 65535:
        return False
    if found["v6"] is None:
        return _HOST.fullmatch(found["host"]) is not None
    try:
        ipaddress.IPv6Address(found["v6"])
    except ipaddress.AddressValueError:
        return False
    return True


def is_user(text: str) -> bool:
    """Whether the text is a Unix user name, and not root's."""
    return text != "root" and _USER.fullmatch(text) is not None


def is_host_key(text: str) -> bool:
    """Whether the text is `<algorithm> <base64>` as in known_hosts, without host names or comment.

    The key must be whole and canonical, so that one key has one text.
    """
    algorithm, _, encoded = text.partition(" ")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return False
    if base64.b64encode(blob).decode() != encoded:
        return False
    parts = _parts(blob)
    if not parts or parts[0] != algorithm.encode():
        return False
    if algorithm == "ssh-ed25519":
        return len(parts) == 2 and len(parts[1]) == 32
    if algorithm in _CURVES:
        curve, size = _CURVES[algorithm]
        return len(parts) == 3 and parts[1] == curve and len(parts[2]) == size and parts[2][0] == 4
    return algorithm == "ssh-rsa" and len(parts) == 3 and _is_modulus(parts[2])


def _parts(blob: bytes) -> list[bytes]:
    """The length-prefixed parts of a key blob, or none where they do not fill it exactly."""
    parts: list[bytes] = []
    at = 0
    while at < len(blob):
        end = at + 4 + int.from_bytes(blob[at : at + 4])
        if at + 4 > len(blob) or end > len(blob):
            return []
        parts.append(blob[at + 4 : end])
        at = end
    return parts


def _is_modulus(number: bytes) -> bool:
    """Whether this is a positive number of at least RSA_BITS_MIN bits in its shortest form."""
    if not number or number[0] >= 0x80 or (number[0] == 0 and len(number) > 1 and number[1] < 0x80):
        return False
    return int.from_bytes(number).bit_length() >= RSA_BITS_MIN
