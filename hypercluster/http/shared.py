"""What all requests of one application share."""

import asyncio
from dataclasses import dataclass, field

from hypercluster.http.limits import Limits
from hypercluster.http.ports import Service


@dataclass(slots=True)
class Shared:
    """answered: the last event number that any answer named; reads wait for it. streams: how many are open.

    stop: set when the server begins to shut down; streams end on it.
    """

    service: Service
    limits: Limits
    answered: int = 0
    streams: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)
