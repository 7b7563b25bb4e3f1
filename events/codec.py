"""Canonical bytes: one value, one text, the same in every release and on every machine.

The set: dictionaries with printable ASCII keys, lists, tuples, text, booleans, and integers up to 2^53 - 1 in
magnitude. No floats and no null: an absent key says the same. Inside this set the bytes are those of RFC 8785 (JCS),
so any JCS library reproduces them. Fields of events are named `[a-z0-9_]+`; keys that users choose, such as the names
of environment variables, may be any printable ASCII text.
"""

from collections.abc import Callable
from functools import cache
from typing import get_args

import msgspec
import orjson

from events.errors import CodecError

LEAF_MAX_BYTES = 32 * 1024
INTEGER_MAX = 2**53 - 1

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_PASSES_BY_IDENTITY = (None, True, False)

type _Step = Callable[[object], object]


def _refuse_float(text: str) -> object:
    raise ValueError(f"{text} is not an integer")


_struct_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(float_hook=_refuse_float)


def encode(value: object) -> bytes:
    """The canonical bytes of a plain value or of a struct (an event, a policy).

    Raises: CodecError
    """
    if isinstance(value, msgspec.Struct):
        data = encode_fields(value)
        decode(data)
        return data
    try:
        _walk(value)
        return orjson.dumps(value, option=_OPTIONS)
    except (TypeError, RecursionError) as error:
        raise CodecError(f"no canonical form: {error}") from error


def decode(data: bytes) -> object:
    """The plain value of canonical bytes. Any other spelling of the same value is refused.

    Raises: CodecError
    """
    try:
        value: object = _decoder.decode(data)
        same = orjson.dumps(value, option=_OPTIONS) == data
        # Null and foreign keys pass the comparison; both leave a trace in the bytes, so most values need no walk.
        if b"null" in data or not data.isascii():
            _walk(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise CodecError(f"not canonical: {error}") from error
    if not same:
        raise CodecError("not canonical: keys out of order, white space, or another spelling of the same value")
    return value


def encode_fields(value: msgspec.Struct) -> bytes:
    """The bytes of a struct whose types are right; whoever stores them checks the result with `decode`.

    Raises: CodecError
    """
    try:
        return _struct_encoder.encode(canonical(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CodecError(f"{type(value).__name__} has no canonical form: {error}") from error


def canonical[S: msgspec.Struct](value: S) -> S:
    """The same struct with every defaulted field holding the default object itself.

    msgspec leaves a field out when it holds the very object that the class names as default. A text that equals it
    but came from a request would be written: two spellings of one value.
    """
    plan = _plan(type(value))
    changed: dict[str, object] = {}
    for name, default in plan.defaults:
        held = getattr(value, name)
        if held is not default and type(held) is type(default) and held == default:
            changed[name] = default
    for name, step in plan.nested:
        held = getattr(value, name)
        new = step(held)
        if new is not held:
            changed[name] = new
    return msgspec.structs.replace(value, **changed) if changed else value


class _Plan(msgspec.Struct, frozen=True):
    """What `canonical` looks at in one class: fields with a default, and fields that hold such structs."""

    defaults: tuple[tuple[str, object], ...]
    nested: tuple[tuple[str, _Step], ...]


@cache
def _plan(cls: type[msgspec.Struct]) -> _Plan:
    fields = msgspec.structs.fields(cls)
    defaults = tuple(
        (field.name, field.default)
        for field in fields
        if cls.__struct_config__.omit_defaults
        and field.default is not msgspec.NODEFAULT
        and not any(field.default is single for single in _PASSES_BY_IDENTITY)
    )
    nested = tuple((field.name, _canonical_within) for field in fields if _holds_defaults(field.type))
    return _Plan(defaults, nested)


def _holds_defaults(hint: object) -> bool:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        plan = _plan(hint)
        return bool(plan.defaults or plan.nested)
    return any(_holds_defaults(part) for part in get_args(hint))


def _canonical_within(held: object) -> object:
    if isinstance(held, msgspec.Struct):
        return canonical(held)
    if isinstance(held, tuple):
        new = tuple(_canonical_within(item) for item in held)
        return held if all(a is b for a, b in zip(new, held, strict=True)) else new
    if isinstance(held, dict):
        return {key: _canonical_within(item) for key, item in held.items()}
    return held


def _walk(value: object) -> None:
    kind = type(value)
    if kind is str or kind is bool:
        return
    if kind is int:
        if not -INTEGER_MAX <= value <= INTEGER_MAX:  # type: ignore[operator]
            raise TypeError(f"{value} is beyond 2^53 - 1")
    elif kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str or not (key.isascii() and key.isprintable()):
                raise TypeError(f"key {key!r} is not printable ASCII text")
            _walk(item)
    elif kind is list or kind is tuple:
        for item in value:  # type: ignore[attr-defined]
            _walk(item)
    else:
        raise TypeError(f"{kind.__name__} is not in the canonical set")
