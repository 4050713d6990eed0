"""Sensors: the use of one quota by all clients that share it. Kafka's `ClientSensors`.

The caller holds the lock of the `ClientQuotaManager`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from klamm.runtime import Rate, TokenBucket
from klamm_throttling.limits import Limit


class Sensor(ABC):
    """One quota and its use. `used_ms` is when it was last looked up or charged."""

    __slots__ = ("limit", "used_ms")

    def __init__(self, limit: Limit, now_ms: int) -> None:
        self.limit = limit
        self.used_ms = now_ms

    @abstractmethod
    def value(self, now_ms: int) -> float:
        """The value of Kafka's metric."""

    @abstractmethod
    def utilization(self, now_ms: int) -> float:
        """The used share of the quota; above 1 it throttles."""


class RateSensor(Sensor):
    """Bytes or percent of a thread's time, per second. `longest_ms`, if not 0, is the longest throttle time."""

    __slots__ = ("_longest_ms", "_rate")

    def __init__(self, limit: Limit, rate: Rate, now_ms: int, longest_ms: int = 0) -> None:
        super().__init__(limit, now_ms)
        self._rate = rate
        self._longest_ms = longest_ms

    def record(self, value: float, now_ms: int) -> int:
        """Record the value and return the throttle time."""
        self.used_ms = now_ms
        self._rate.record(value, now_ms)
        return self.throttle_time_ms(now_ms)

    def record_if_allowed(self, value: float, now_ms: int) -> int:
        """Record the value and return 0, or return the throttle time if it would exceed the quota.

        The first value is allowed whatever its size. Otherwise a value above the quota of all windows could never pass.
        """
        self.used_ms = now_ms
        unused = self._rate.measure(now_ms) <= 0
        self._rate.record(value, now_ms)
        throttle_time_ms = 0 if unused else self.throttle_time_ms(now_ms)
        if throttle_time_ms:
            self._rate.record(-value, now_ms)
        return throttle_time_ms

    def throttle_time_ms(self, now_ms: int) -> int:
        """Return the throttle time for the values recorded so far."""
        throttle_time_ms = self._rate.throttle_time_ms(self.limit.value, now_ms)
        return min(throttle_time_ms, self._longest_ms) if self._longest_ms else throttle_time_ms

    def value(self, now_ms: int) -> float:
        return self._rate.measure(now_ms)

    def utilization(self, now_ms: int) -> float:
        return self._rate.measure(now_ms) / self.limit.value


class TokenSensor(Sensor):
    """Controller mutations, from a bucket (KIP-599)."""

    __slots__ = ("_bucket",)

    def __init__(self, limit: Limit, bucket: TokenBucket, now_ms: int) -> None:
        super().__init__(limit, now_ms)
        self._bucket = bucket

    def take(self, count: int, now_ms: int) -> int:
        """Take tokens. Returns the throttle time if there were too few."""
        self.used_ms = now_ms
        self._bucket.take(count, self.limit.value, now_ms)
        return self._bucket.throttle_time_ms(self.limit.value, now_ms)

    def take_if_allowed(self, count: int, now_ms: int) -> int:
        """Take tokens and return 0, or return the throttle time if the bucket is below zero."""
        self.used_ms = now_ms
        throttle_time_ms = self._bucket.throttle_time_ms(self.limit.value, now_ms)
        if not throttle_time_ms:
            self._bucket.take(count, self.limit.value, now_ms)
        return throttle_time_ms

    def value(self, now_ms: int) -> float:
        return self._bucket.tokens(self.limit.value, now_ms)

    def utilization(self, now_ms: int) -> float:
        return 1 - self._bucket.tokens(self.limit.value, now_ms) / (self.limit.value * self._bucket.burst_s)
