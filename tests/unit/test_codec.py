"""One value, one text."""

import json
from datetime import UTC, datetime
from enum import IntEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import codec
from events.errors import CodecError
from events.types.jobs import JobSpec, JobSubmitted
from events.types.policy import ClassValue

LIMIT = 2**53 - 1
text = st.text(st.characters(exclude_categories=("Cs",)))
keys = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
values = st.recursive(
    text | st.booleans() | st.integers(-LIMIT, LIMIT),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


class Level(IntEnum):
    LOW = 1


@given(values)
def test_bytes_are_those_of_jcs(value: object):
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert codec.encode(value) == expected
    assert codec.decode(expected) == value


REFUSED = [1.0, {"a": 0.5}, None, {"a": None}, [None], LIMIT + 1, -LIMIT - 1, 2**64, 2**200, "\ud800", {"\ud800": 1}]
REFUSED += [
    {"é": 1},
    {"a\n": 1},
    {"a\x7f": 1},
    {1: 2},
    b"x",
    {1, 2},
    datetime(2025, 1, 1, tzinfo=UTC),
    Level.LOW,
    object,
]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_what_has_no_canonical_form_is_refused(value: object):
    with pytest.raises(CodecError):
        codec.encode(value)


MISSPELT = [
    b"",
    b"{",
    b'{"b":1,"a":2}',
    b'{"a":1,"a":1}',
    b'{"a": 1}',
    b"1.0",
    b"1e3",
    b"-0",
    b"01",
    b"null",
    b"[null]",
]
MISSPELT += [
    b'"\\u00e9"',
    b'"\\/"',
    b'"\xff"',
    b'"\\ud800"',
    '{"é":1}'.encode(),
    b"9007199254740992",
    b"1" * 40,
    b"NaN",
]
MISSPELT += [b'{"a":1}\n', b"[" * 300 + b"]" * 300, b"[" * 100_000]


@pytest.mark.parametrize("data", MISSPELT, ids=lambda data: repr(data[:20]))
def test_another_spelling_is_refused(data: bytes):
    with pytest.raises(CodecError):
        codec.decode(data)


def test_a_circle_and_a_deep_nest_are_refused():
    circle: list[object] = []
    circle.append(circle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep):
        with pytest.raises(CodecError):
            codec.encode(value)


def test_null_inside_a_text_is_text():
    assert codec.decode(b'{"a":"null"}') == {"a": "null"}


def job(**fields: object) -> JobSubmitted:
    spec = JobSpec(
        image_digest="i", entrypoint=("run",), world_size=1, nnodes=1, nproc_per_node=1, timeout_s=1, **fields
    )
    return JobSubmitted(job_id="j", submitter="s", spec=spec)


def test_a_default_is_left_out_whoever_made_the_text():
    nccl = "".join(["nc", "cl"])  # equal to the default, not the same object
    empty = "".join(["{", "}"])
    assert codec.encode(job(backend=nccl, resource=empty)) == codec.encode(job())
    assert b"backend" in codec.encode(job(backend="gloo"))


def test_a_default_deep_in_a_tuple_is_left_out():
    class Inner(msgspec.Struct, frozen=True, omit_defaults=True):
        unit: str = "bytes"

    class Outer(msgspec.Struct, frozen=True, omit_defaults=True):
        many: tuple[Inner, ...]
        named: dict[str, Inner]
        maybe: Inner | None = None

    unit = "".join(["by", "tes"])
    outer = Outer((Inner(unit),), {"a": Inner(unit)}, Inner(unit))
    assert codec.encode(outer) == b'{"many":[{}],"maybe":{},"named":{"a":{}}}'


def test_a_true_is_not_taken_for_the_default_one():
    class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
        times: int = 1

    assert codec.encode(Counted(True)) == b'{"times":true}'


@pytest.mark.parametrize("value", [0.5, None, 2**53, "\ud800"])
def test_a_struct_is_checked_like_a_plain_value(value: object):
    with pytest.raises(CodecError):
        codec.encode(ClassValue(gpu_class="x", vendor="nvidia", value_ppm=value))  # type: ignore[arg-type]


def test_keys_that_users_choose_are_checked():
    assert codec.decode(codec.encode(job(env={"MY-KEY 1": "c"})))
    with pytest.raises(CodecError):
        codec.encode(job(env={"KÉY": "c"}))
