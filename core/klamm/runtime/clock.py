"""Clocks, the only source of time. All code that depends on time gets a `Clock`, which tests can replace."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time, in the units of Kafka's `Time`."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a monotonic clock, for durations and deadlines."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, for timestamps that users see. The time may jump."""
        ...

    def wall_us(self) -> int:
        """Return microseconds since the epoch; otherwise like `wall_ms`."""
        ...


class SystemClock:
    """The clock of the operating system. Its `monotonic_ns` is `time.monotonic_ns`."""

    __slots__ = ()

    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        """Return the system's time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def wall_us(self) -> int:
        """Return the system's time in microseconds since the epoch."""
        return time.time_ns() // 1_000


class ManualClock:
    """A clock for tests: it moves only when it is called. Both readings advance together, until `jump_wall_ms`."""

    __slots__ = ("_monotonic_ns", "_wall_offset_ns")

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ns = 1_000_000_000
        self._wall_offset_ns = wall_ms * 1_000_000 - self._monotonic_ns

    def monotonic_ns(self) -> int:
        """Return the monotonic time, which starts at one second."""
        return self._monotonic_ns

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return (self._monotonic_ns + self._wall_offset_ns) // 1_000_000

    def wall_us(self) -> int:
        """Return microseconds since the epoch."""
        return (self._monotonic_ns + self._wall_offset_ns) // 1_000

    def advance_ms(self, ms: float) -> None:
        """Move forward by `ms` milliseconds."""
        self._monotonic_ns += int(ms * 1_000_000)

    def jump_wall_ms(self, ms: int) -> None:
        """Set the wall clock forward, or back, as an administrator does."""
        self._wall_offset_ns += ms * 1_000_000
