"""`RateLimitedLog`, for log lines that clients can cause in any number."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Final

Later = Callable[[float, Callable[[], object]], object]

INTERVAL_MS: Final = 60_000
_KEYS: Final = 1000


class RateLimitedLog:
    """A log that writes at most `burst` lines for each key in an interval.

    At the end of the interval it writes the number of the other lines. `later(delay_ms, callback)` calls a function
    later, e.g. `Scheduler.schedule`. Any thread may use the log.
    """

    def __init__(self, logger: logging.Logger, later: Later, *, burst: int = 1, interval_ms: int = INTERVAL_MS) -> None:
        self._logger = logger
        self._later = later
        self._burst = burst
        self._interval_ms = interval_ms
        # Protects the counts of lines by key.
        self._lock = threading.Lock()
        self._seen: dict[Hashable, int] = {}
        self._suppressed = 0

    @property
    def suppressed(self) -> int:
        """Return the number of suppressed lines."""
        return self._suppressed

    def log(self, key: Hashable, level: int, message: str, *arguments: object, error: Exception | None = None) -> None:
        """Write a line, with the traceback of `error`, unless this interval has had `burst` lines of the key."""
        with self._lock:
            seen = self._seen.get(key, 0)
            if seen == 0 and len(self._seen) >= _KEYS:
                # There are too many keys, so all further keys count as one.
                key = "others"
                seen = self._seen.get(key, 0)
            self._seen[key] = seen + 1
            if seen >= self._burst:
                self._suppressed += 1
        if seen == 0:
            self._later(self._interval_ms, lambda: self._summarize(key, level, message, arguments))
        if seen < self._burst:
            self._logger.log(level, message, *arguments, exc_info=error)

    def _summarize(self, key: Hashable, level: int, message: str, arguments: tuple[object, ...]) -> None:
        with self._lock:
            suppressed = self._seen.pop(key) - self._burst
        if suppressed > 0:
            seconds = self._interval_ms // 1000
            text = message % arguments
            self._logger.log(level, "%d more in %d s like the first, which was: %s", suppressed, seconds, text)
