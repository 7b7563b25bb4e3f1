"""The one renderer: every command's answer goes to standard output through here, in the format that was asked for.

Text that strangers chose is shown with its control and bidirectional characters escaped.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum


class Format(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"


_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def escape(text: str) -> str:
    """Printable on one line of a terminal: characters that steer it or reorder text become `\\u....`."""
    return _UNSAFE.sub(lambda found: _code(ord(found[0])), text)


def _code(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def show(data: object, form: Format, *, line: str | None = None, columns: Sequence[str] = ()) -> None:
    """Print one answer. In tables, `line` comes first and `columns` names and orders what is shown of items."""
    if form is Format.TABLE:
        if line is not None:
            write(escape(line))
        write(table(data, columns))
    elif form is Format.JSON:
        write(as_json(data, indent=2))
    elif form is Format.YAML:
        write("\n".join(_yaml(data, 0)))
    else:
        items = _items(data)
        for item in items if items is not None else [data]:
            write(as_json(item))


def write(text: str) -> None:
    """A piece of data on standard output, with a line end."""
    if text:
        sys.stdout.write(text + "\n")


def flush() -> None:
    """Push out what was written, for readers that follow."""
    sys.stdout.flush()


def note(text: str) -> None:
    """Anything that is not data: on standard error."""
    sys.stderr.write(escape(text) + "\n")


def as_json(data: object, *, indent: int | None = None) -> str:
    """JSON in ASCII with sorted keys, so that no character can steer a terminal."""
    separators = None if indent else (",", ":")
    text = json.dumps(data, indent=indent, sort_keys=True, ensure_ascii=True, separators=separators)
    return text.replace("\x7f", "\\u007f")


def _items(data: object) -> list[object] | None:
    """The list that the answer is about, or None where it is about one thing."""
    if isinstance(data, Mapping):
        data = data.get("items")
    return list(data) if isinstance(data, list | tuple) else None


def table(data: object, columns: Sequence[str] = ()) -> str:
    """Items as aligned columns, one thing as `key  value` lines. Empty lists give a header or nothing."""
    items = _items(data)
    if items is None:
        return _pairs(data)
    rows = [item if isinstance(item, Mapping) else {"value": item} for item in items]
    names = list(columns) or list(dict.fromkeys(str(key) for row in rows for key in row))
    if not names:
        return ""
    lines = [[escape(name).upper() for name in names], *([cell(row.get(name)) for name in names] for row in rows)]
    numeric = [bool(rows) and all(_is_number(row.get(name)) for row in rows) for name in names]
    return _aligned(lines, numeric)


def _pairs(data: object) -> str:
    if not isinstance(data, Mapping):
        return cell(data)
    return _aligned([[escape(str(key)), cell(value)] for key, value in data.items()], [False, False])


def _aligned(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)] if lines else []
    return "\n".join(_line(line, widths, numeric) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(padded).rstrip()


def cell(value: object) -> str:
    """One value on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping | list | tuple):
        return as_json(value)
    return escape(str(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _yaml(data: object, depth: int) -> list[str]:
    """Block YAML; every text that is not a plain word is quoted as JSON, which YAML reads the same way."""
    pad = "  " * depth
    if isinstance(data, Mapping) and data:
        return [
            line for key, value in data.items() for line in _yaml_entry(f"{pad}{_yaml_key(str(key))}:", value, depth)
        ]
    if isinstance(data, list | tuple) and data:
        return [line for value in data for line in _yaml_entry(f"{pad}-", value, depth)]
    return [pad + as_json(data)]


def _yaml_entry(head: str, value: object, depth: int) -> Iterable[str]:
    if isinstance(value, Mapping | list | tuple) and value:
        return [head, *_yaml(value, depth + 1)]
    return [f"{head} {as_json(value)}"]


def _yaml_key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _YAML_WORDS else as_json(key)
