"""The market's deciders by kind of command."""

from collections.abc import Callable

from hypercluster.domain.kernel import Command, Context, Decision
from hypercluster.domain.market import codes as _codes  # noqa: F401 (its import registers them)
from hypercluster.domain.market import leases, offers, providers
from projections.fold import State

DECIDERS: dict[str, Callable[[State, Command, Context], Decision]] = {
    "provider.register": providers.register,
    "provider.heartbeat": providers.heartbeat,
    "offer.create": offers.create,
    "offer.withdraw": offers.withdraw,
    "offer.rent": leases.rent,
    "lease.terminate": leases.terminate,
    "lease.expire": leases.expire,
}
