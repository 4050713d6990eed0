"""The growth of a total over a recent window. It is computed when a metric is read, so that counting costs no more."""

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
    """The growth of a total and the elapsed time, over one to two windows. Any thread may call it.

    A total is stored at most every 5 s, so that several readers get the same window.
    """

    def __init__(self, window_ns: int, begin_ns: int, begin_total: float = 0) -> None:
        self._window_ns = window_ns
        # Protects the marks.
        self._lock = threading.Lock()
        self._marks = deque([(begin_ns, begin_total)])

    def read(self, now_ns: int, total: float) -> tuple[float, int]:
        """Return the growth, and the nanoseconds since the window began."""
        with self._lock:
            marks = self._marks
            while len(marks) > 1 and now_ns - marks[1][0] >= self._window_ns:
                marks.popleft()
            begin_ns, begin_total = marks[0]
            if now_ns - marks[-1][0] >= _STEP_NS:
                marks.append((now_ns, total))
        return total - begin_total, now_ns - begin_ns


class WindowedShare:
    """The share of a thread's time by which a total of nanoseconds has grown, over the last half to one minute.

    Kafka's percentages use such windows too.
    """

    def __init__(self, begin_ns: int) -> None:
        self._growth = RecentGrowth(_HALF_MINUTE_NS, begin_ns)

    def read(self, now_ns: int, total_ns: int, capacity: int = 1) -> float:
        """Return the growth as a share, 0 to 1, of the time of `capacity` threads since the window began."""
        grown_ns, elapsed_ns = self._growth.read(now_ns, total_ns)
        return min(1.0, max(0.0, grown_ns / (elapsed_ns * capacity))) if elapsed_ns > 0 else 0.0


class RatePerMinute:
    """The growth of `total()` per minute, over the last minute, or since the previous read if that was earlier.

    Kafka's rates use two windows of 30 s.
    """

    def __init__(self, clock: Clock, total: Callable[[], float]) -> None:
        self._clock = clock
        self._total = total
        self._growth = RecentGrowth(_MINUTE_NS, clock.monotonic_ns(), total())

    def read(self) -> float:
        """Return the current growth per minute."""
        grown, elapsed_ns = self._growth.read(self._clock.monotonic_ns(), self._total())
        return grown * _MINUTE_NS / elapsed_ns if elapsed_ns > 0 else 0.0
