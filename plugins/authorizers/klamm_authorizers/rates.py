"""How often a counter grows, told when somebody asks: whoever counts pays nothing for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from klamm.runtime import Clock

_STEP_NS: Final = 5_000_000_000
_MINUTE_NS: Final = 60_000_000_000


class RatePerMinute:
    """What `total` grew by per minute, over the last minute, or since the question before it if that was earlier.

    Kafka's are rates over two windows of 30 s. Whoever asks, and how often, makes no difference to the others.
    """

    def __init__(self, clock: Clock, total: Callable[[], float]) -> None:
        self._clock = clock
        self._total = total
        self._lock = threading.Lock()
        self._marks = deque([(clock.monotonic_ns(), total())])

    def read(self) -> float:
        """Per minute, now."""
        now_ns, total = self._clock.monotonic_ns(), self._total()
        with self._lock:
            marks = self._marks
            while len(marks) > 1 and now_ns - marks[1][0] >= _MINUTE_NS:
                marks.popleft()
            begin_ns, begin_total = marks[0]
            if now_ns - marks[-1][0] >= _STEP_NS:
                marks.append((now_ns, total))
        elapsed_ns = now_ns - begin_ns
        return (total - begin_total) * _MINUTE_NS / elapsed_ns if elapsed_ns > 0 else 0.0
