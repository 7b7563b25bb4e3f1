"""The clock of the writer, and when it must not be believed."""

import time
from dataclasses import dataclass

JUMP_MAX_US = 60_000_000


class Clock:
    """Wall and monotonic time in microseconds."""

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds that only ever advance."""
        return time.monotonic_ns() // 1000


@dataclass(slots=True)
class ClockGuard:
    """Compares the wall clock with the last event and with the monotonic clock.

    A step back of up to 60 s is clamped. More than that behind the last event at start, or a gap of more than 60 s
    between the two clocks while running, stops all writes until an operator accepts the clock.
    """

    clock: Clock
    last_event_us: int
    fault: str | None = None
    _offset_us: int = 0

    def __post_init__(self) -> None:
        now = self.clock.wall_us()
        self._offset_us = now - self.clock.monotonic_us()
        if self.last_event_us - now > JUMP_MAX_US:
            behind = (self.last_event_us - now) // 1_000_000
            self.fault = f"the clock is {behind} s behind the last event"

    def now_us(self) -> int:
        """The time of the next group: never before the last event. Notes a jump in `fault`."""
        now = self.clock.wall_us()
        gap = now - self.clock.monotonic_us() - self._offset_us
        if abs(gap) > JUMP_MAX_US and self.fault is None:
            self.fault = f"the clock jumped by {gap // 1_000_000} s"
        return max(now, self.last_event_us)

    def accept(self) -> None:
        """Take the clock as it is now."""
        self._offset_us = self.clock.wall_us() - self.clock.monotonic_us()
        self.fault = None
