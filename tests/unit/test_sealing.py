"""Sealing: private values leave the body, their commitments stay and open to nothing else."""

import pytest

from events.hashing import commit_value
from hypercluster.domain.sealing import SealingError, lacks_salt, salt_of, salt_of_field, seal

SALT = bytes(range(16))


def commit(salt, field, value):
    return commit_value(salt_of_field(salt, field), value)


def test_a_private_text_and_each_value_of_a_private_object_are_replaced():
    body = {
        "env": {"TOKEN": "secret", "OTHER": "secret"},
        "hostname": "gpu-7.example",
        "world_size": 2,
        "private_salt": SALT.hex(),
    }
    sealed = seal(body, ("env", "hostname", "reason"), SALT)
    assert "secret" not in str(sealed.public)
    assert "gpu-7" not in str(sealed.public)
    assert "private_salt" not in sealed.public
    assert sealed.public["world_size"] == 2
    assert sealed.public["hostname"] == commit(SALT, "hostname", "gpu-7.example")
    assert {(opening.field, opening.value) for opening in sealed.openings} == {
        ("env.TOKEN", "secret"),
        ("env.OTHER", "secret"),
        ("hostname", "gpu-7.example"),
    }
    for opening in sealed.openings:
        assert opening.commitment == commit_value(opening.salt, opening.value)
        assert opening.commitment in str(sealed.public)
    assert body["env"] == {"TOKEN": "secret", "OTHER": "secret"}, "the caller's body is left alone"


def test_a_commitment_binds_salt_field_and_value():
    one = commit(SALT, "env.A", "x")
    others = [commit(SALT, "env.B", "x"), commit(SALT, "env.A", "y"), commit(SALT + b"1", "env.A", "x")]
    assert one not in others
    assert len(one) == len("hmac-sha256:") + 64


def test_null_and_absent_stay():
    assert seal({"hostname": None}, ("hostname", "reason"), SALT).public == {"hostname": None}


@pytest.mark.parametrize("value", [7, ["a"], True, {"A": 1}, {"A": None}, {"A": {"B": "c"}}])
def test_other_private_values_are_refused_and_named(value):
    with pytest.raises(SealingError) as caught:
        seal({"env": value}, ("env",), SALT)
    assert caught.value.field in ("env", "env.A")


@pytest.mark.parametrize(
    "text", ["000102030405060708090a0b0c0d0e0f", "AAECAwQFBgcICQoLDA0ODw", "AAECAwQFBgcICQoLDA0ODw=="]
)
def test_salts_come_in_hex_or_base64url(text):
    assert salt_of({"private_salt": text}) == SALT


@pytest.mark.parametrize(
    "text", ["", "00" * 15, "00" * 65, "short", "A" * 21 + "!", "A" * 200, 7, ["00" * 16], "A" * 41]
)
def test_weak_or_malformed_salts_are_refused(text):
    with pytest.raises(SealingError):
        salt_of({"private_salt": text})


def test_who_must_bring_a_salt():
    assert salt_of({}) is None
    assert lacks_salt({"env": {"A": "b"}}, "production")
    assert not lacks_salt({"env": {"A": "b"}, "private_salt": SALT.hex()}, "production")
    assert not lacks_salt({"env": {}}, "production")
    assert not lacks_salt({"env": {"A": "b"}}, "sim")
