"""Decimal numbers of the wire into integers with a unit. Exact, or rounded down where it says so; never a float."""

from decimal import Decimal

type Number = Decimal | int  # a JSON number as the strict reader gives it

MICRO = 1_000_000
EXPONENT_MAX = 30  # beyond 10^30 or below 10^-30 nothing here has a meaning


def exact(value: Number, factor: int) -> int | None:
    """value times factor, or None where that is no integer."""
    numerator, denominator = _ratio(value)
    whole, rest = divmod(numerator * factor, denominator)
    return None if rest else whole


def floor(value: Number, factor: int) -> int:
    """value times factor, rounded down."""
    numerator, denominator = _ratio(value)
    return numerator * factor // denominator


def micro_usd(value: Number) -> int | None:
    """USD into micro-USD, or None where it has more than six decimals."""
    return exact(value, MICRO)


def _ratio(value: Number) -> tuple[int, int]:
    """Numerator and denominator, without building huge powers of ten for numbers that are refused anyway."""
    if isinstance(value, int):
        return value, 1
    if value and value.adjusted() > EXPONENT_MAX:
        return 10**EXPONENT_MAX if value > 0 else -(10**EXPONENT_MAX), 1
    if value and value.adjusted() < -EXPONENT_MAX:
        return 1 if value > 0 else -1, 10**EXPONENT_MAX
    return value.as_integer_ratio()
