"""Addresses: one spelling per key, no foreign formats, no forgeable keys."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_core_ed25519_is_valid_point

from hypercluster.domain.identity.ss58 import Ss58Error, decode, encode, is_forgeable

ALICE = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
ALICE_KEY = bytes.fromhex("d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d")
VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "base.json"


def vectors(name):
    if not VECTORS.exists():
        pytest.skip("the shared vectors are absent")
    return json.loads(VECTORS.read_text())[name]


@given(st.binary(min_size=32, max_size=32).filter(lambda key: not is_forgeable(key)))
def test_every_key_has_one_address(key):
    address = encode(key)
    assert len(address) == 48
    assert address.startswith("5")
    assert decode(address) == key


def test_a_known_address():
    assert decode(ALICE) == ALICE_KEY
    assert encode(ALICE_KEY) == ALICE


@pytest.mark.parametrize("place", range(48))
def test_a_typing_error_is_found(place):
    other = "2" if ALICE[place] != "2" else "3"
    with pytest.raises(Ss58Error):
        decode(ALICE[:place] + other + ALICE[place + 1 :])


@pytest.mark.parametrize("key", [bytes(31), bytes(33), b""])
def test_only_32_bytes_have_an_address(key):
    with pytest.raises(Ss58Error):
        encode(key)


SMALL_ORDER = [
    "00" * 32,
    "00" * 31 + "80",
    "01" + "00" * 31,
    "01" + "00" * 30 + "80",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "ec" + "ff" * 30 + "7f",
    "ec" + "ff" * 31,
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
    "ee" + "ff" * 31,
]


@pytest.mark.parametrize("text", SMALL_ORDER)
def test_keys_that_anybody_can_sign_for_are_refused(text):
    key = bytes.fromhex(text)
    assert not crypto_core_ed25519_is_valid_point(key), "libsodium agrees that this is no sound key"
    with pytest.raises(Ss58Error, match="anybody"):
        decode(encode(key))


def test_sound_keys_are_not_called_forgeable():
    key = bytes.fromhex("8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394")
    assert crypto_core_ed25519_is_valid_point(key)
    assert not is_forgeable(key)
    assert not is_forgeable(ALICE_KEY)


@pytest.mark.corpus
def test_addresses_of_the_vectors():
    for key in vectors("ss58")["keys"]:
        for network, address in key["ss58"].items():
            if network == "42":
                assert decode(address) == bytes.fromhex(key["public_hex"])
            else:
                with pytest.raises(Ss58Error):
                    decode(address)


@pytest.mark.corpus
def test_malformed_and_foreign_addresses_of_the_vectors():
    for case in vectors("ss58")["malformed_or_foreign"]:
        with pytest.raises(Ss58Error):
            decode(case["address"])
