"""The `resource` object of a job: what it holds, and the bounds that are hard guards."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from hypercluster.domain import strict_json
from hypercluster.domain.kernel import US_PER_H, Refused
from hypercluster.domain.prices import Number, floor, micro_usd

TEXT_BYTES_MAX = 4096
VALUE_MAX = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Resource:
    """text: JSON as kept; gpus as stated; the bounds that the lease must respect."""

    text: str
    gpus: int | None = None
    max_price_micro_usd_h: int | None = None
    max_lifetime_us: int | None = None


def read_resource(given: dict[str, object]) -> Resource | Refused:
    """Keep scalars, arrays of scalars and objects of scalars; drop deeper shapes; read gpus and the two bounds.

    `max_price_per_hour` is in USD with at most six decimals, `max_lifetime_hours` is rounded down to microseconds.
    """
    kept = {key: value for key, value in given.items() if _is_shallow(value)}
    text = strict_json.dumps(kept)
    if len(text.encode()) > TEXT_BYTES_MAX:
        return Refused("invalid_resource", f"resource exceeds {TEXT_BYTES_MAX} bytes", field="resource")
    gpus = kept.get("gpus")
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0):
        return Refused("invalid_resource", "gpus is a whole number from 0", field="resource.gpus")
    price = _bound(given.get("max_price_per_hour"), micro_usd)
    if isinstance(price, Refused):
        return replace(price, field="resource.max_price_per_hour")
    lifetime = _bound(given.get("max_lifetime_hours"), lambda hours: floor(hours, US_PER_H))
    if isinstance(lifetime, Refused):
        return replace(lifetime, field="resource.max_lifetime_hours")
    return Resource(text, gpus if isinstance(gpus, int) else None, price, lifetime)


def _is_shallow(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_scalar(item) for item in value)
    if isinstance(value, dict):
        return all(_is_scalar(item) for item in value.values())
    return _is_scalar(value)


def _is_scalar(value: object) -> bool:
    return not isinstance(value, list | dict)


def _bound(value: object, convert: Callable[[Number], int | None]) -> int | Refused | None:
    """The converted bound; None where it is absent."""
    if value is None:
        return None
    if not isinstance(value, bool) and isinstance(value, int | Decimal):
        bound = convert(value)
        if bound is not None and 0 < bound <= VALUE_MAX:
            return bound
    return Refused("invalid_resource", "a bound is a number above 0; one on the price has at most six decimals")
