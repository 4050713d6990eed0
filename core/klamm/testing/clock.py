"""`MovingClock`: the system's clock, which a test can move forward."""

from __future__ import annotations

import time


class MovingClock:
    """A clock that runs like the system's, plus the time by which `advance_ms` has moved it.

    Sessions, retention, quotas and timestamps of a server with this clock follow it. In a test, call
    `EmbeddedServer.advance_ms`, which also wakes the server's timers.
    """

    __slots__ = ("_ahead_ns",)

    def __init__(self) -> None:
        self._ahead_ns = 0

    def monotonic_ns(self) -> int:
        """Return the system's monotonic time, moved."""
        return time.monotonic_ns() + self._ahead_ns

    def wall_ms(self) -> int:
        """Return the system's milliseconds since the epoch, moved."""
        return (time.time_ns() + self._ahead_ns) // 1_000_000

    def wall_us(self) -> int:
        """Return the system's microseconds since the epoch, moved."""
        return (time.time_ns() + self._ahead_ns) // 1_000

    def advance_ms(self, ms: float) -> None:
        """Move the time forward by `ms` milliseconds. Raises ValueError for a negative number."""
        if ms < 0:
            raise ValueError(f"time does not go back: {ms}")
        self._ahead_ns += int(ms * 1_000_000)
