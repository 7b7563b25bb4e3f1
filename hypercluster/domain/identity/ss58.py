"""SS58 addresses of format 42: one spelling per key, and no key that anybody can sign for."""

import hashlib
from functools import lru_cache

KEY_BYTES = 32
LENGTH = 48  # of every address of format 42

_FORMAT = b"\x2a"
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}

# y coordinates of the Ed25519 points of order 1, 2, 4 and 8, in every encoding. Signatures by these keys verify
# for any message in some libraries; the first one is also the identity of ristretto255.
_SMALL_ORDER = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


class Ss58Error(ValueError):
    """Not a canonical address of format 42, or a key that anybody can sign for."""


@lru_cache(maxsize=4096)
def decode(address: str) -> bytes:
    """The 32-byte public key of a canonical address.

    Raises: Ss58Error
    """
    if len(address) != LENGTH:
        raise Ss58Error(f"an address of format 42 has {LENGTH} characters")
    raw = _base58_decode(address)
    if raw[:1] != _FORMAT or len(raw) != KEY_BYTES + 3:
        raise Ss58Error("not an address of format 42")
    key = raw[1:-2]
    if raw[-2:] != _checksum(key):
        raise Ss58Error("the address has a typing error: its checksum is wrong")
    if is_forgeable(key):
        raise Ss58Error("anybody can sign for this key")
    if encode(key) != address:
        raise Ss58Error("the address is not in its canonical spelling")
    return key


def encode(key: bytes) -> str:
    """The address of a 32-byte public key.

    Raises: Ss58Error on another length.
    """
    if len(key) != KEY_BYTES:
        raise Ss58Error(f"a public key has {KEY_BYTES} bytes")
    number = int.from_bytes(_FORMAT + key + _checksum(key))
    characters: list[str] = []
    while number:
        number, digit = divmod(number, 58)
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))


def is_forgeable(key: bytes) -> bool:
    """Whether the key is the identity or another point of small order, whatever its sign bit."""
    return key[:-1] + bytes([key[-1] & 0x7F]) in _SMALL_ORDER


def _checksum(key: bytes) -> bytes:
    return hashlib.blake2b(b"SS58PRE" + _FORMAT + key).digest()[:2]


def _base58_decode(text: str) -> bytes:
    number = 0
    for character in text:
        value = _VALUES.get(character)
        if value is None:
            raise Ss58Error("an address holds letters and digits only, without 0, O, I and l")
        number = number * 58 + value
    return number.to_bytes((number.bit_length() + 7) // 8)
