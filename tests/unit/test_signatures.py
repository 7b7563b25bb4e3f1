"""Signatures: the accepted forms and schemes, and what no library may let through."""

import json
from pathlib import Path

import pytest
import sr25519
from nacl.signing import SigningKey

from hypercluster.domain.identity.signatures import (
    ED25519,
    HMAC,
    SR25519,
    SignatureError,
    parse_signature,
    verify,
    verify_hmac,
)

SEED = bytes(range(32))
PAIR = sr25519.pair_from_seed(SEED)
MESSAGE = b"hypercluster-v2\nwhatever"
SIGNATURE = bytes(sr25519.sign(PAIR, MESSAGE))
VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "base.json"


def vectors(name):
    if not VECTORS.exists():
        pytest.skip("the shared vectors are absent")
    return json.loads(VECTORS.read_text())[name]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("ab" * 64, (SR25519, b"\xab" * 64)),
        ("0x" + "AB" * 64, (SR25519, b"\xab" * 64)),
        ("0x01" + "ab" * 64, (SR25519, b"\xab" * 64)),
        ("ed25519:" + "ab" * 64, (ED25519, b"\xab" * 64)),
        ("ed25519:0x" + "ab" * 64, (ED25519, b"\xab" * 64)),
        ("ab" * 32, (HMAC, b"\xab" * 32)),
        ("sha256=" + "ab" * 32, (HMAC, b"\xab" * 32)),
    ],
)
def test_accepted_forms(header, expected):
    assert parse_signature(header) == expected


@pytest.mark.parametrize(
    "header",
    [
        "",
        "0x",
        "ab" * 63,
        "ab" * 65,
        "00" + "ab" * 64,
        "02" + "ab" * 65,
        "ed25519:01" + "ab" * 64,
        "ed25519:",
        "AB" * 32,
        "sha256=" + "AB" * 32,
        "g" * 128,
        "ab" * 64 + " ",
        "ab" * 64 + "\n",
        "ab" * 32 + "\n",
        "0x0x" + "ab" * 64,
        "sr25519:" + "ab" * 64,
        "ab" * 5000,
    ],
)
def test_refused_forms(header):
    with pytest.raises(SignatureError):
        parse_signature(header)


def test_sr25519_plain_and_wrapped():
    assert verify(SR25519, PAIR[0], MESSAGE, SIGNATURE)
    assert verify(SR25519, PAIR[0], MESSAGE, bytes(sr25519.sign(PAIR, b"<Bytes>" + MESSAGE + b"</Bytes>")))
    assert not verify(SR25519, PAIR[0], MESSAGE + b"x", SIGNATURE)


def test_ed25519_plain_and_wrapped():
    key = SigningKey(SEED)
    public = bytes(key.verify_key)
    assert verify(ED25519, public, MESSAGE, key.sign(MESSAGE).signature)
    assert verify(ED25519, public, MESSAGE, key.sign(b"<Bytes>" + MESSAGE + b"</Bytes>").signature)
    assert not verify(ED25519, public, MESSAGE, key.sign(b"other").signature)


def test_a_signature_of_one_scheme_is_none_of_the_other():
    key = SigningKey(SEED)
    assert not verify(SR25519, bytes(key.verify_key), MESSAGE, key.sign(MESSAGE).signature)
    assert not verify(ED25519, PAIR[0], MESSAGE, SIGNATURE)


def test_every_flipped_byte_is_found():
    for place in range(64):
        broken = bytearray(SIGNATURE)
        broken[place] ^= 1
        assert not verify(SR25519, PAIR[0], MESSAGE, bytes(broken)), place


def test_the_identity_key_signs_for_nobody():
    forged = bytes(63) + b"\x80"
    assert sr25519.verify(forged, b"anything", bytes(32)), "the library alone would let it through"
    assert not verify(SR25519, bytes(32), b"anything", forged)


@pytest.mark.parametrize(
    ("key", "signature"), [(b"", SIGNATURE), (PAIR[0], b""), (b"\xff" * 32, SIGNATURE), (PAIR[0], bytes(64))]
)
def test_malformed_input_is_false_never_an_exception(key, signature):
    assert not verify(SR25519, key, MESSAGE, signature)
    assert not verify(ED25519, key, MESSAGE, signature)


def test_an_unknown_scheme_is_a_fault_of_the_caller():
    with pytest.raises(ValueError, match="rsa"):
        verify("rsa", PAIR[0], MESSAGE, SIGNATURE)


def test_hmac_needs_the_token():
    known = bytes.fromhex("f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8")
    assert verify_hmac("key", b"The quick brown fox jumps over the lazy dog", known)
    assert not verify_hmac("other", b"The quick brown fox jumps over the lazy dog", known)


@pytest.mark.corpus
def test_sr25519_vectors():
    found = vectors("sr25519_substrate_context")
    for case in found["positive"]:
        key, message = bytes.fromhex(case["public_hex"]), bytes.fromhex(case["message_hex"])
        assert verify(SR25519, key, message, bytes.fromhex(case["signature_hex"]))
        assert verify(SR25519, key, message, bytes.fromhex(case["signature_over_wrapped_hex"]))
    for case in found["negative"]:
        key, message = bytes.fromhex(case["public_hex"]), bytes.fromhex(case["message_hex"])
        scheme, signature = parse_signature(case["signature_hex"])
        assert verify(scheme, key, message, signature) == ("MultiSignature" in case["label"]), case["label"]
    fixed = found["upstream_fixed_vector"]
    assert verify(
        SR25519,
        bytes.fromhex(fixed["public_hex"]),
        fixed["message_utf8"].encode(),
        bytes.fromhex(fixed["signature_hex"]),
    )


@pytest.mark.corpus
def test_ed25519_vectors():
    found = vectors("ed25519")
    for case in found["cases"]:
        key, message = bytes.fromhex(case["public_hex"]), bytes.fromhex(case["message_hex"])
        assert verify(ED25519, key, message, bytes.fromhex(case["signature_hex"]))
        assert not verify(ED25519, key, message + b"x", bytes.fromhex(case["signature_hex"]))
    for case in found["small_order_negative"]["cases"]:
        for message in (b"", b"any", b"anything at all"):
            assert not verify(ED25519, bytes.fromhex(case["public_hex"]), message, bytes.fromhex(case["signature_hex"]))
