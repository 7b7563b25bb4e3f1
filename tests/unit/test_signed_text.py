"""The signed request: headers, grammar, and one test for every element that a signature binds."""

import base64
import hashlib
import hmac

import pytest
import sr25519
from nacl.signing import SigningKey

from hypercluster.domain.codes import CODES
from hypercluster.domain.identity import ss58
from hypercluster.domain.identity.authentication import Authenticated, authenticate, check_text, is_hotkey
from hypercluster.domain.identity.signed_text import (
    V1,
    SignedHeaders,
    SignedText,
    SignedTextError,
    is_signed,
    parse,
    read_headers,
)
from hypercluster.domain.kernel import Refused

PAIR = sr25519.pair_from_seed(bytes(range(32)))
HOTKEY = ss58.encode(PAIR[0])
OTHER_PAIR = sr25519.pair_from_seed(bytes(range(1, 33)))
NOW_S = 1_796_000_000
BODY = hashlib.sha256(b'{"price_per_hour": 2.5}').hexdigest()
TOKEN = "shared-secret"


def text_of(**changes):
    parts = {
        "audience": "hypercluster@finney",
        "method": "POST",
        "path": "/v1/offers?dry=1",
        "hotkey": HOTKEY,
        "nonce": "nonce-0123456789_A",
        "seconds": NOW_S,
        "body_sha256": BODY,
    }
    return SignedText(**(parts | changes))


def headers_of(text, signature=None, prefix="x-"):
    signature = signature or bytes(sr25519.sign(PAIR, text.message())).hex()
    values = (text.hotkey, signature, text.nonce, str(text.seconds))
    names = ("hotkey", "signature", "nonce", "timestamp")
    return [(f"{prefix}{name}".encode(), value.encode()) for name, value in zip(names, values, strict=True)]


def ask(headers, **changes):
    asked = {
        "method": "POST",
        "path_qs": "/v1/offers?dry=1",
        "body_sha256": BODY,
        "now_us": NOW_S * 1_000_000 + 999_999,
        "audience": "hypercluster@finney",
        "window_s": 300,
        "profile": "production",
        "shared_token": TOKEN,
    }
    return authenticate(headers, **(asked | changes))


def code_of(found):
    assert isinstance(found, Refused), found
    assert CODES[found.code].status in (401, 422)
    return found.code


def test_a_good_request_is_authenticated_and_can_be_checked_again_from_its_record():
    text = text_of()
    found = ask(headers_of(text))
    assert isinstance(found, Authenticated)
    assert (found.hotkey, found.scheme, found.nonce, found.timestamp) == (HOTKEY, "sr25519", text.nonce, NOW_S)
    assert found.text == (
        f"hypercluster-v2\nhypercluster@finney\nPOST\n/v1/offers?dry=1\n{HOTKEY}\nnonce-0123456789_A\n{NOW_S}\n{BODY}"
    )
    assert parse(found.text) == text
    assert check_text(parse(found.text), found.scheme, base64.b64decode(found.signature))


@pytest.mark.parametrize(
    "signed",
    [
        {"audience": "hypercluster@test"},
        {"method": "DELETE"},
        {"path": "/v1/offers/1?dry=1"},
        {"path": "/v1/offers"},
        {"path": "/v1/offers?dry=2"},
        {"body_sha256": hashlib.sha256(b"").hexdigest()},
        {"nonce": "nonce-0123456789_B"},
        {"seconds": NOW_S + 1},
        {"hotkey": ss58.encode(OTHER_PAIR[0])},
    ],
    ids=lambda signed: next(iter(signed)),
)
def test_each_element_is_bound(signed):
    """The key signs one thing, the request says another."""
    signature = bytes(sr25519.sign(PAIR, text_of(**signed).message())).hex()
    assert code_of(ask(headers_of(text_of(), signature))) == "invalid_signature"


@pytest.mark.parametrize(
    "served",
    [
        {"audience": "hypercluster@test"},
        {"method": "DELETE"},
        {"path_qs": "/v1/offers/1?dry=1"},
        {"path_qs": "/v1/offers"},
        {"body_sha256": hashlib.sha256(b"").hexdigest()},
    ],
    ids=lambda served: next(iter(served)),
)
def test_a_signature_cannot_be_used_elsewhere(served):
    found = ask(headers_of(text_of()), **served)
    assert code_of(found) == "invalid_signature"
    assert isinstance(found, Refused)
    assert served.get("audience", "hypercluster@finney") in (found.hint or "")


def test_ed25519_must_be_named():
    key = SigningKey(bytes(range(32)))
    text = text_of(hotkey=ss58.encode(bytes(key.verify_key)))
    signature = key.sign(text.message()).signature.hex()
    found = ask(headers_of(text, f"ed25519:{signature}"))
    assert isinstance(found, Authenticated)
    assert found.scheme == "ed25519"
    assert code_of(ask(headers_of(text, signature))) == "invalid_signature"


def test_the_forms_of_a_good_signature():
    text = text_of()
    plain = bytes(sr25519.sign(PAIR, text.message())).hex()
    wrapped = bytes(sr25519.sign(PAIR, b"<Bytes>" + text.message() + b"</Bytes>")).hex()
    for form in (plain, "0x" + plain, "01" + plain, "0x01" + plain, wrapped, plain.upper()):
        assert isinstance(ask(headers_of(text, form)), Authenticated), form


@pytest.mark.parametrize("skew", [-300, 300, 0])
def test_inside_the_window(skew):
    assert isinstance(ask(headers_of(text_of(seconds=NOW_S + skew))), Authenticated)


@pytest.mark.parametrize(("skew", "side"), [(-301, "behind"), (301, "ahead")])
def test_outside_the_window_names_server_time_and_skew(skew, side):
    found = ask(headers_of(text_of(seconds=NOW_S + skew)))
    assert code_of(found) == "stale_signature"
    assert isinstance(found, Refused)
    assert f"server time {NOW_S}" in (found.hint or "")
    assert f"301 s {side}" in (found.hint or "")


def replaced(name, value):
    return [(key, value if key == name else old) for key, old in headers_of(text_of())]


@pytest.mark.parametrize(
    "value", [b"179600000", b"17960000000", b"1796000000.0", b"+796000000", "١٧٩٦٠٠٠٠٠٠".encode(), b"now"]
)
def test_invalid_timestamps(value):
    assert code_of(ask(replaced(b"x-timestamp", value))) == "invalid_timestamp"


@pytest.mark.parametrize(
    "value", [b"short", b"x" * 65, b"nonce with blanks 1", b"nonce-0123456789:A", b"nonce-0123456789\xe9"]
)
def test_invalid_nonces(value):
    assert code_of(ask(replaced(b"x-nonce", value))) == "invalid_nonce"


@pytest.mark.parametrize(
    "hotkey",
    [
        "alice",
        HOTKEY[:-1],
        "15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5",
        "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM",
        "d43593c715fdd31c61141abd04a99fd6822c8558854ccde39a5684e7a56da27d",
    ],
)
def test_invalid_hotkeys(hotkey):
    assert code_of(ask(replaced(b"x-hotkey", hotkey.encode()))) == "invalid_hotkey"


def test_the_forgeable_key_is_refused_with_its_forged_signature():
    text = text_of(hotkey="5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM")
    assert code_of(ask(headers_of(text, "00" * 63 + "80"))) == "invalid_hotkey"


@pytest.mark.parametrize("value", [b"not hex", b"00" * 64, b"\xff\xfe", b"0x"])
def test_invalid_signatures(value):
    assert code_of(ask(replaced(b"x-signature", value))) == "invalid_signature"


@pytest.mark.parametrize("path", ["/v1/offers%2f1", "/v1/a b", "/v1/ä", "v1/offers", "/v1/offers#x", '/v1/"', "/v1/\n"])
def test_paths_that_cannot_be_signed(path):
    assert code_of(ask(headers_of(text_of(path=path)), path_qs=path)) == "invalid_path"


def test_both_header_sets():
    text = text_of()
    signature = bytes(sr25519.sign(PAIR, text.message())).hex()
    plain, second = headers_of(text, signature), headers_of(text, signature, "X-Hyper-")
    assert isinstance(ask(second), Authenticated)
    assert isinstance(ask(plain + second), Authenticated)
    assert isinstance(ask(plain[:2] + second[2:]), Authenticated)
    other = [(b"x-hyper-nonce", b"nonce-0123456789_B")]
    assert code_of(ask(plain + other)) == "duplicate_auth_header"


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("prefix", ["x-", "x-hyper-"])
def test_a_duplicate_header_is_refused_even_if_equal(number, prefix):
    headers = headers_of(text_of(), prefix=prefix)
    assert code_of(ask([*headers, headers[number]])) == "duplicate_auth_header"


@pytest.mark.parametrize("number", range(4))
def test_missing_and_empty_headers(number):
    headers = headers_of(text_of())
    name = headers[number][0].decode()
    for rest in (headers[:number] + headers[number + 1 :], replaced(headers[number][0], b" ")):
        found = ask(rest)
        assert code_of(found) == "missing_auth_headers"
        assert isinstance(found, Refused)
        assert name in found.message.lower()


def test_a_bare_hotkey_header_is_no_signature():
    assert not is_signed([(b"x-hotkey", HOTKEY.encode()), (b"accept", b"*/*")])
    assert is_signed([(b"X-Signature", b"")])
    assert is_signed([(b"x-hyper-signature", b"00")])


def test_headers_are_read_as_they_are():
    assert read_headers(headers_of(text_of(), "00")) == SignedHeaders(HOTKEY, "00", text_of().nonce, str(NOW_S))


def hmac_headers(hotkey="miner-a", token=TOKEN, prefix="", nonce="n1"):
    message = f"hypercluster:{hotkey}:{nonce}:{NOW_S}:{BODY}".encode()

    signature = prefix + hmac.new(token.encode(), message, hashlib.sha256).hexdigest()
    return headers_of(text_of(hotkey=hotkey, nonce=nonce), signature)


def test_hmac_with_free_text_hotkeys_in_the_sim_profile():
    for prefix in ("", "sha256="):
        found = ask(hmac_headers(prefix=prefix), profile="sim")
        assert isinstance(found, Authenticated)
        assert (found.hotkey, found.scheme) == ("miner-a", "hmac")
        assert found.text == f"POST /v1/offers?dry=1\nhypercluster:miner-a:n1:{NOW_S}:{BODY}"
        assert parse(found.text).version == V1
    assert code_of(ask(hmac_headers(token="wrong"), profile="sim")) == "invalid_signature"
    assert code_of(ask(hmac_headers(hotkey="a:b"), profile="sim")) == "invalid_hotkey"


@pytest.mark.parametrize("changes", [{"profile": "production"}, {"profile": "sim", "shared_token": None}])
def test_hmac_is_no_signature_elsewhere(changes):
    assert code_of(ask(hmac_headers(hotkey=HOTKEY, nonce="nonce-0123456789"), **changes)) == "invalid_signature"
    assert code_of(ask(hmac_headers(), **changes)) == "invalid_hotkey"


def test_a_real_key_works_in_the_sim_profile_too():
    assert isinstance(ask(headers_of(text_of()), profile="sim"), Authenticated)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hypercluster-v2",
        str(text_of()) + "\n",
        str(text_of()).replace("v2", "v3"),
        str(text_of(body_sha256=BODY.upper())),
        str(text_of(nonce="short")),
        str(text_of(method="post")),
        str(text_of(seconds=1)).replace("0000000001", "1"),
        f"POST\nhypercluster:a:n:{NOW_S}:{BODY}",
        f"POST /v1\nhypercluster:a:b:n:{NOW_S}:{BODY}",
    ],
)
def test_what_is_no_signed_text(text):
    with pytest.raises(SignedTextError):
        parse(text)


def test_who_is_a_hotkey():
    assert is_hotkey(HOTKEY, "production")
    assert is_hotkey(HOTKEY, "sim")
    assert is_hotkey("miner-a", "sim")
    assert not is_hotkey("miner-a", "production")
    assert not is_hotkey("miner:a", "sim")
    assert not is_hotkey("", "sim")
