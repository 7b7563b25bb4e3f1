"""Strict JSON: one reading of every text, nothing that could blow the stack, Decimals kept exactly."""

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercluster.domain.strict_json import StrictJsonError, dumps, loads


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b'{"a":1,"a":2}',
        b'[{"x":{"a":1,"b":2,"a":1}}]',
        b'{"a":1,"\\u0061":2}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b'"\\ud800"',
        b'["\\udc00\\ud800"]',
        b'{"\\ud800":1}',
        b'"\\u0000"',
        b'{"a\\u0000":1}',
        b'["x\x00"]',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"{},",
        b"[1,]",
        b"{'a':1}",
        b"01",
        b"1" * 65,
        b"1." + b"0" * 64,
        b"1e400",
        b"1e65",
        b"1e-65",
        b"1e9999999999999999999999",
        b"0e-9999999999999999999999",
        b'"unterminated',
        b"//\n1",
    ],
)
def test_refused(data):
    with pytest.raises(StrictJsonError):
        loads(data)


def test_numbers_stay_exact():
    value = loads(b'{"a":0.1,"b":1e0,"c":1000000000000000000000000000000,"d":-0.0,"e":2.50}')
    assert value == {"a": Decimal("0.1"), "b": 1, "c": 10**30, "d": 0, "e": Decimal("2.5")}
    assert isinstance(value, dict)
    assert isinstance(value["b"], Decimal)
    assert str(value["e"]) == "2.50"


def test_pairs_of_surrogates_and_other_escapes_are_read():
    assert loads(b'"\\ud83d\\ude00 \\n \\\\u0000"') == "\U0001f600 \n \\u0000"


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_depth_is_checked_before_parsing(opening):
    with pytest.raises(StrictJsonError, match="deeper than 32"):
        loads(opening * 100_000)


def test_depth_limit_is_exact_and_strings_do_not_count():
    assert loads(b"[" * 32 + b'"[[{\\"["' + b"]" * 32)
    with pytest.raises(StrictJsonError, match="deeper"):
        loads(b"[" * 33 + b"]" * 33)
    with pytest.raises(StrictJsonError, match="deeper than 1 "):
        loads(b"[[]]", max_depth=1)
    assert loads(b"[" + b"[]," * 500 + b"1]")


def test_a_long_run_of_quotes_and_backslashes_is_fast():
    started = time.process_time()
    for data in (b'"' * 200_001, b'"' + b"\\" * 200_001, b'["' + b'\\"' * 100_000):
        with pytest.raises(StrictJsonError):
            loads(data)
    assert time.process_time() - started < 2, "the scan must be linear"


@pytest.mark.parametrize(
    "value", [1.5, {1: 2}, "\ud800", "a\x00", Decimal("NaN"), Decimal("Infinity"), {1}, b"x", object()]
)
def test_what_has_no_exact_form_is_not_written(value):
    with pytest.raises(StrictJsonError):
        dumps(value)


NUMBERS = st.integers(-(10**40), 10**40) | st.decimals(allow_nan=False, allow_infinity=False).filter(
    lambda number: (
        len(str(number)) <= 60 and abs(number.adjusted()) <= 60 and abs(int(number.as_tuple().exponent)) <= 60
    )
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def exact(value):
    """The value with each Decimal spelled out, so that 1.0 and 1.00 differ."""
    if isinstance(value, Decimal):
        return ("decimal", value.as_tuple())
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_what_is_written_is_read_back_exactly(value):
    text = dumps(value)
    assert exact(loads(text.encode())) == exact(value)
    assert dumps(loads(text.encode())) == text


def test_equal_values_give_equal_text():
    assert dumps({"b": [1, None, True], "a": Decimal("1.10")}) == '{"a":1.10,"b":[1,null,true]}'
    assert dumps({"a": 1, "b": 2}) == dumps({"b": 2, "a": 1})
