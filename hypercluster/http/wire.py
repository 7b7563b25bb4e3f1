"""The only place where stored integers become what clients read: times as text, money and ratios as floats."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z")
_SECONDS = re.compile(r"\d{1,11}")

US_PER_H = 3_600_000_000


@lru_cache(maxsize=4096)  # one object's times, and those of one group, are often the same
def time_text(at_us: int) -> str:
    """Microseconds since 1970 as UTC ISO-8601 with `Z`; a fraction only when it is not zero."""
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")


def optional_time(at_us: int | None) -> str | None:
    """As `time_text`, None stays None."""
    return None if at_us is None else time_text(at_us)


def parse_time(text: str) -> int | None:
    """Microseconds since 1970 of an ISO-8601 text ending in `Z`, or of unix seconds; None when it is neither."""
    if _SECONDS.fullmatch(text):
        return int(text) * 1_000_000
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    *fields, fraction = found.groups()
    year, month, day, hour, minute, second = (int(field) for field in fields)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))


def usd_per_hour(micro_usd_h: int) -> float:
    """Micro-USD per hour as USD per hour."""
    return micro_usd_h / 1_000_000


def usd(micro_usd: int) -> float:
    """Micro-USD as USD."""
    return micro_usd / 1_000_000


def hours(span_us: int) -> float:
    """Microseconds as hours."""
    return span_us / US_PER_H


def ratio(ppm: int) -> float:
    """Parts per million as a ratio."""
    return ppm / 1_000_000


def gigabytes(megabytes: int | None) -> float | None:
    """MB of 10^6 bytes as GB; None stays None."""
    return None if megabytes is None else megabytes / 1000


def gbps(bytes_per_s: int | None) -> float | None:
    """Bytes per second as gigabits per second; None stays None."""
    return None if bytes_per_s is None else bytes_per_s * 8 / 1_000_000_000
