"""Hashes of the ledger: RFC 6962 leaves and nodes, the local chain, commitments to private values.

A domain byte stands before each input, so that a leaf, a node and a link of the chain can never be mistaken for
one another: 0x00 leaf, 0x01 node, 0x02 chain.
"""

import hashlib
import hmac

EMPTY_ROOT = hashlib.sha256(b"").digest()
SALT_MIN_BYTES = 16


def leaf_hash(entry: bytes) -> bytes:
    """SHA-256(0x00 || entry): 32 bytes."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right): 32 bytes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def chain_start(origin: str) -> bytes:
    """What the first link builds on: SHA-256(0x02 || origin || LF), the origin as the checkpoint's first line."""
    return hashlib.sha256(b"\x02" + origin.encode() + b"\n").digest()


def chain_next(previous: bytes, leaf: bytes) -> bytes:
    """SHA-256(0x02 || previous link || leaf hash): 32 bytes."""
    return hashlib.sha256(b"\x02" + previous + leaf).digest()


def commit_value(salt: bytes, value: str) -> str:
    """The commitment that stands in an event for a private value: `hmac-sha256:<64 hex>`, keyed by the salt.

    Raises: ValueError for a salt below 128 bits, which would let anybody try out likely values.
    """
    if len(salt) < SALT_MIN_BYTES:
        raise ValueError(f"a salt has at least {SALT_MIN_BYTES} bytes")
    return "hmac-sha256:" + hmac.digest(salt, value.encode(), "sha256").hex()
