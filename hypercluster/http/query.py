"""Query parameters and path parameters, read strictly."""

import re
from urllib.parse import parse_qsl

from hypercluster.http import wire
from hypercluster.http.errors import Problem

LIMIT_DEFAULT = 100
LIMIT_MAX = 500
NUMBER_MAX = 2**53 - 1

_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_TEXT = re.compile(r"[ -~]{0,256}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FLAGS = {"1": True, "true": True, "yes": True, "y": True, "0": False, "false": False, "no": False, "n": False}


class Query:
    """The parameters of one request. Unknown and repeated ones are refused when it is made.

    Raises: Problem (invalid_query), from every method
    """

    def __init__(self, query_string: bytes, allowed: tuple[str, ...]) -> None:
        self._values: dict[str, str] = {}
        for name, value in _pairs(query_string):
            if name not in allowed:
                known = f"known are {', '.join(allowed)}" if allowed else "the route takes none"
                raise Problem("invalid_query", f"unknown query parameter; {known}", field=name[:64])
            if name in self._values:
                raise Problem("invalid_query", f"{name} came twice", field=name)
            self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Printable ASCII of at most 256 characters, or None where the parameter is absent."""
        value = self._values.get(name)
        if value is not None and not _TEXT.fullmatch(value):
            raise Problem("invalid_query", f"{name} must be at most 256 printable characters", field=name)
        return value

    def number(self, name: str, default: int, *, low: int = 0, high: int = NUMBER_MAX) -> int:
        """A whole number between the bounds."""
        value = self._values.get(name)
        if value is None:
            return default
        if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
            raise Problem("invalid_query", f"{name} must be a whole number from {low} to {high}", field=name)
        return int(value)

    def optional_number(self, name: str) -> int | None:
        """A whole number, or None where the parameter is absent."""
        return self.number(name, 0) if name in self._values else None

    def flag(self, name: str) -> bool | None:
        """true or false in the spellings of the reference, or None where the parameter is absent."""
        value = self._values.get(name)
        if value is None:
            return None
        found = _FLAGS.get(value.lower())
        if found is None:
            raise Problem("invalid_query", f"{name} must be true or false", field=name)
        return found

    def time(self, name: str) -> int | None:
        """A time in microseconds since 1970, or None where the parameter is absent."""
        value = self._values.get(name)
        if value is None:
            return None
        found = wire.parse_time(value)
        if found is None:
            raise Problem("invalid_query", f"{name} must be unix seconds or as 2026-01-31T12:00:00Z", field=name)
        return found

    def limit(self) -> int:
        """The page size."""
        return self.number("limit", LIMIT_DEFAULT, low=1, high=LIMIT_MAX)

    def after(self) -> int:
        """The cursor of the last item seen, 0 to begin."""
        return self.number("after", 0)


def path_id(value: str, name: str) -> str:
    """A path parameter that is an id or a hotkey.

    Raises: Problem (invalid_path)
    """
    if not _ID.fullmatch(value):
        raise Problem("invalid_path", f"{name} must be 1 to 64 of A-Z a-z 0-9 . _ -", field=name)
    return value


def path_number(value: str, name: str) -> int:
    """A path parameter that counts from 1.

    Raises: Problem (invalid_path)
    """
    if not _NUMBER.fullmatch(value) or not 1 <= int(value) <= NUMBER_MAX:
        raise Problem("invalid_path", f"{name} must be a whole number of at least 1", field=name)
    return int(value)


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    if not query_string:
        return []
    try:
        text = query_string.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=32, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise Problem("invalid_query", "the query string is malformed") from error
