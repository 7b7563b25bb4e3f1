"""The one reader of strangers' JSON: refuses whatever two parsers could read in two ways.

Python's own parser does the work; its hooks refuse duplicate keys, NaN and numbers without bounds. Numbers with
a fraction or an exponent become `Decimal`, never `float`.
"""

import json
import re
from decimal import Decimal, InvalidOperation

DEPTH_MAX = 32
DIGITS_MAX = 64
EXPONENT_MAX = 64

# Whole strings are one token, so that brackets inside them do not count; one without an end takes all that is left.
# Possessive and never failing after its quote: the scan is linear.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class StrictJsonError(ValueError):
    """The bytes are not strict JSON, or the value has no JSON form. The message is for the sender."""


def loads(data: bytes, *, max_depth: int = DEPTH_MAX) -> object:
    """Parse one JSON text: dict, list, str, int, Decimal, bool or None.

    max_depth: how many arrays and objects may be open at once; it is checked before parsing, so that no input
    can exhaust the stack.

    Raises: StrictJsonError
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"not UTF-8 at byte {error.start}") from error
    if text.startswith("\ufeff"):
        raise StrictJsonError("begins with a byte order mark")
    _check_depth(text, max_depth)
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from error
    if "\\u" in text:  # only an escape can make what valid UTF-8 and the parser do not let through
        _check_strings(value)
    return value


def dumps(value: object) -> str:
    """The compact JSON text of a value, keys sorted; equal values give equal text, Decimals stay exact.

    Raises: StrictJsonError for a float, a key that is no string, bad Unicode or any other type.
    """
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def _check_depth(text: str, max_depth: int) -> None:
    if text.count("[") + text.count("{") <= max_depth:
        return  # too few to be too deep, wherever they stand
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > max_depth:
                raise StrictJsonError(f"nested deeper than {max_depth} levels")
        elif first != '"':
            depth -= 1


def _check_strings(value: object) -> None:
    if isinstance(value, str):
        _check_string(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_string(key)
            _check_strings(item)
    elif isinstance(value, list):
        for item in value:
            _check_strings(item)


def _check_string(text: str) -> None:
    if "\x00" in text:
        raise StrictJsonError("a string holds a NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StrictJsonError("a string holds half a surrogate pair") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise StrictJsonError(f"key {key[:64]!a} comes twice in one object")
        seen.add(key)
    return found


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise StrictJsonError(f"a number has more than {DIGITS_MAX} characters")
    return int(text)


def _decimal(text: str) -> Decimal:
    if len(text) > DIGITS_MAX:
        raise StrictJsonError(f"a number has more than {DIGITS_MAX} characters")
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise StrictJsonError("a number's exponent is out of bounds") from error
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or max(abs(exponent), abs(number.adjusted())) > EXPONENT_MAX:
        raise StrictJsonError("a number's exponent is out of bounds")
    return number


def _constant(text: str) -> object:
    raise StrictJsonError(f"{text} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_decimal, parse_int=_integer, parse_constant=_constant
)


def _write(value: object, parts: list[str]) -> None:
    match value:
        case None | True | False:
            parts.append({None: "null", True: "true", False: "false"}[value])
        case str():
            parts.append(_string(value))
        case int():
            parts.append(str(value))
        case Decimal():
            parts.append(_number(value))
        case dict():
            _write_object(value, parts)
        case list() | tuple():
            _write_array(value, parts)
        case _:
            raise StrictJsonError(f"{type(value).__name__} has no exact JSON form")


def _string(text: str) -> str:
    _check_string(text)
    return json.dumps(text, ensure_ascii=False)


def _number(value: Decimal) -> str:
    if not value.is_finite():
        raise StrictJsonError(f"{value} is not a JSON number")
    text = str(value)
    # An integral Decimal keeps an exponent, so that it is read back as a Decimal and not as an int.
    return text if "." in text or "E" in text else f"{text}E+0"


def _write_object(value: dict[object, object], parts: list[str]) -> None:
    keys: list[str] = []
    for key in value:
        if not isinstance(key, str):
            raise StrictJsonError(f"a key is a {type(key).__name__}, not a string")
        keys.append(key)
    parts.append("{")
    for index, key in enumerate(sorted(keys)):
        parts.append("," * (index > 0) + _string(key) + ":")
        _write(value[key], parts)
    parts.append("}")


def _write_array(value: list[object] | tuple[object, ...], parts: list[str]) -> None:
    parts.append("[")
    for index, item in enumerate(value):
        if index:
            parts.append(",")
        _write(item, parts)
    parts.append("]")
