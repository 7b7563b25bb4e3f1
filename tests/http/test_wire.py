"""The one conversion module: times and floats of the wire."""

import pytest

from hypercluster.http import wire


@pytest.mark.parametrize(
    ("at_us", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_796_078_701_441_760, "2026-11-30T22:45:01.441760Z"),
        (1_796_078_701_000_000, "2026-11-30T22:45:01Z"),
        (1, "1970-01-01T00:00:00.000001Z"),
    ],
)
def test_times_go_both_ways(at_us: int, text: str) -> None:
    assert wire.time_text(at_us) == text
    assert wire.parse_time(text) == at_us


def test_unix_seconds_are_a_time_and_nonsense_is_not() -> None:
    assert wire.parse_time("1796078701") == 1_796_078_701_000_000
    for text in ("", "now", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "-1", "1" * 12):
        assert wire.parse_time(text) is None, text


def test_units() -> None:
    assert wire.usd_per_hour(2_490_000) == 2.49
    assert wire.hours(5_400_000_000) == 1.5
    assert wire.ratio(333_333) == 0.333333
    assert wire.gigabytes(1500) == 1.5
    assert wire.gbps(25_000_000_000) == 200.0
    assert (wire.gbps(None), wire.gigabytes(None), wire.optional_time(None)) == (None, None, None)


def test_prices_of_six_decimals_come_back_as_they_were_written() -> None:
    for micro in (1, 10, 123_456, 999_999_999, 1_000_000_000):
        assert round(wire.usd_per_hour(micro) * 1_000_000) == micro
