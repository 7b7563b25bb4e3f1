"""Vectors written out by hand from the rules."""

import hashlib

import pytest

from events import hashing


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def test_each_hash_has_its_own_domain():
    a, b = b"a" * 32, b"b" * 32
    assert hashing.leaf_hash(b"entry") == sha256(b"\x00entry")
    assert hashing.node_hash(a, b) == sha256(b"\x01" + a + b)
    assert hashing.chain_next(a, b) == sha256(b"\x02" + a + b)
    assert hashing.chain_start("ledger.example") == sha256(b"\x02ledger.example\n")
    # RFC 6962, 2.1: the empty tree
    assert hashing.EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_commitment_is_an_hmac():
    # RFC 4231, test case 2, with its key filled up by zeros to 16 bytes: HMAC pads the key itself
    assert (
        hashing.commit_value(b"Jefe" + bytes(12), "what do ya want for nothing?")
        == "hmac-sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


def test_a_short_salt_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        hashing.commit_value(b"x" * 15, "value")
