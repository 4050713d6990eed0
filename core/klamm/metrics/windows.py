"""Growth of a total over a recent window. Computed when a metric is read; counting has no extra cost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from klamm.runtime.clock import Clock

_STEP_NS: Final = 5_000_000_000
_HALF_MINUTE_NS: Final = 30_000_000_000
_MINUTE_NS: Final = 60_000_000_000


class RecentGrowth:
    """The growth of a total and the elapsed time, over one to two windows. Thread safe.

    Readers do not disturb each other: a total is stored every 5 s at most, however often it is read.
    """

    def __init__(self, window_ns: int, begin_ns: int, begin_total: float = 0) -> None:
        self._window_ns = window_ns
        # Protects the marks.
        self._lock = threading.Lock()
        self._marks = deque([(begin_ns, begin_total)])

    def read(self, now_ns: int, total: float) -> tuple[float, int]:
        """The growth and the nanoseconds since the window began."""
        with self._lock:
            marks = self._marks
            while len(marks) > 1 and now_ns - marks[1][0] >= self._window_ns:
                marks.popleft()
            begin_ns, begin_total = marks[0]
            if now_ns - marks[-1][0] >= _STEP_NS:
                marks.append((now_ns, total))
        return total - begin_total, now_ns - begin_ns


class WindowedShare:
    """The share of time that a growing total of nanoseconds represents, over the last half to one minute.

    Kafka's percentages are meters over such windows.
    """

    def __init__(self, begin_ns: int) -> None:
        self._growth = RecentGrowth(_HALF_MINUTE_NS, begin_ns)

    def read(self, now_ns: int, total_ns: int, capacity: int = 1) -> float:
        """Return the share, 0 to 1, of the time that `capacity` threads had since the window began."""
        grown_ns, elapsed_ns = self._growth.read(now_ns, total_ns)
        return min(1.0, max(0.0, grown_ns / (elapsed_ns * capacity))) if elapsed_ns > 0 else 0.0


class RatePerMinute:
    """The growth of `total()` per minute, over the last minute, or since the previous read if that was earlier.

    Kafka's rates are over two windows of 30 s.
    """

    def __init__(self, clock: Clock, total: Callable[[], float]) -> None:
        self._clock = clock
        self._total = total
        self._growth = RecentGrowth(_MINUTE_NS, clock.monotonic_ns(), total())

    def read(self) -> float:
        """Per minute, now."""
        grown, elapsed_ns = self._growth.read(self._clock.monotonic_ns(), self._total())
        return grown * _MINUTE_NS / elapsed_ns if elapsed_ns > 0 else 0.0
