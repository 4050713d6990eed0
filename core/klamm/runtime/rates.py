"""`Rate` and `TokenBucket`: the two ways to measure quotas, with the arithmetic of Kafka's metrics.

They have no clock and no lock. The caller passes the time, in milliseconds of a monotonic clock. Only one thread at a
time may use an object.
"""

from __future__ import annotations

import math
from typing import Final

SAMPLES: Final = 11
"""The number of windows, Kafka's `quota.window.num`: ten whole windows and the current one."""
WINDOW_MS: Final = 1000
"""Kafka's `quota.window.size.seconds`."""
MAX_THROTTLE_TIME_MS: Final = 2**31 - 1
"""The longest `throttle_time_ms` that a response can carry."""


class Rate:
    """The sum of recorded values per second, over the last `samples` windows of `window_ms`.

    It computes like Kafka's `Rate` over a `WindowedSum`. The elapsed time is at least `samples` - 1 whole windows, so a
    first burst is spread over all of them. The ring has one sample more than there are windows, because the oldest
    sample may overlap the measured time.
    """

    __slots__ = ("_current", "_lasts_ms", "_starts_ms", "_sums", "samples", "window_ms")

    def __init__(self, samples: int = SAMPLES, window_ms: int = WINDOW_MS) -> None:
        self.samples = samples
        self.window_ms = window_ms
        self._current = 0
        self._starts_ms: list[int] = []
        self._lasts_ms: list[int] = []
        self._sums: list[float] = []

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the current window. A negative value undoes an earlier record."""
        current = self._current
        if not self._sums:
            self._append(now_ms)
        elif now_ms - self._starts_ms[current] >= self.window_ms:
            current = self._current = (current + 1) % (self.samples + 1)
            if current == len(self._sums):
                self._append(now_ms)
            else:
                self._starts_ms[current] = now_ms
                self._sums[current] = 0
        self._sums[current] += value
        self._lasts_ms[current] = now_ms

    def _append(self, now_ms: int) -> None:
        self._starts_ms.append(now_ms)
        self._lasts_ms.append(now_ms)
        self._sums.append(0)

    def measure(self, now_ms: int) -> float:
        """Return the current rate per second."""
        return self._measure(now_ms)[0]

    def throttle_time_ms(self, bound: float, now_ms: int) -> int:
        """Return the milliseconds until the rate falls to the bound; 0 if it is not above.

        No value may be recorded meanwhile. This is Kafka's `QuotaUtils.throttleTime`: with the rate O over W
        milliseconds and the bound T, the result X solves O·W / (W + X) = T. The result is at most MAX_THROTTLE_TIME_MS;
        in Kafka the number wraps around.
        """
        rate, elapsed_ms = self._measure(now_ms)
        if rate <= bound:
            return 0
        return _whole_ms((rate - bound) / bound * elapsed_ms)

    def _measure(self, now_ms: int) -> tuple[float, int]:
        sums = self._sums
        if not sums:
            self._append(now_ms)
        starts_ms, lasts_ms = self._starts_ms, self._lasts_ms
        window_ms = self.window_ms
        obsolete_ms = now_ms - self.samples * window_ms
        oldest_ms = now_ms
        total: float = 0
        for index, last_ms in enumerate(lasts_ms):
            if last_ms <= obsolete_ms:
                starts_ms[index] = lasts_ms[index] = now_ms
                sums[index] = 0
                continue
            total += sums[index]
            if starts_ms[index] < oldest_ms:
                oldest_ms = starts_ms[index]
        elapsed_ms = now_ms - oldest_ms
        missing = self.samples - 1 - elapsed_ms // window_ms
        if missing > 0:
            elapsed_ms += missing * window_ms
        elapsed_ms = max(elapsed_ms, 1)
        return total / (elapsed_ms / 1000), elapsed_ms


class TokenBucket:
    """Tokens that are refilled at `rate` per second, up to `rate` * `burst_s` of them (KIP-599).

    A new bucket is full. One `take` may bring the number of tokens below zero; the bucket is exhausted while it is
    below zero. Each call gets the rate, because the rate may change.
    """

    __slots__ = ("_last_ms", "_tokens", "burst_s")

    def __init__(self, samples: int = SAMPLES, window_ms: int = WINDOW_MS) -> None:
        self.burst_s = samples * window_ms / 1000
        self._tokens = 0.0
        self._last_ms: int | None = None

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Take tokens, even if there are too few."""
        self._tokens = self.tokens(rate, now_ms) - count

    def tokens(self, rate: float, now_ms: int) -> float:
        """Return the number of tokens left; negative if more were taken."""
        burst = self.burst_s * rate
        if self._last_ms is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + rate * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return self._tokens

    def throttle_time_ms(self, rate: float, now_ms: int) -> int:
        """Return the milliseconds until the number of tokens is not negative; at most MAX_THROTTLE_TIME_MS."""
        tokens = self.tokens(rate, now_ms)
        return _whole_ms(-tokens / rate * 1000) if tokens < 0 else 0


def _whole_ms(milliseconds: float) -> int:
    # The comparison comes before the rounding, because the time is infinite for a tiny quota.
    return math.floor(milliseconds + 0.5) if milliseconds < MAX_THROTTLE_TIME_MS else MAX_THROTTLE_TIME_MS
