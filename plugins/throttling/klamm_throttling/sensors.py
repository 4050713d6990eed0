"""Sensors: each has one quota, and its use by all clients that share it, like Kafka's `ClientSensors`.

The caller holds the lock of the `ClientQuotaManager` in all calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from klamm.runtime import Rate, TokenBucket
from klamm.shared import WorkerShare
from klamm_throttling.limits import Limit

SensorKey: TypeAlias = tuple[str, str, str]
"""The key of a sensor: the quota, and the user and the client id that share it."""

PERIOD_MS: Final = 1000
_WHOLE: Final = 1000
_STEPS: Final = 4
_MOST: Final = 100 * _WHOLE


class Sensor(ABC):
    """One quota and its use. `used_ms` is the time of the last charge."""

    __slots__ = ("limit", "used_ms")

    def __init__(self, limit: Limit, now_ms: int) -> None:
        self.limit = limit
        self.used_ms = now_ms

    @abstractmethod
    def value(self, now_ms: int) -> float:
        """Return the value that Kafka's metric would have."""

    @abstractmethod
    def utilization(self, now_ms: int) -> float:
        """Return the used share of the quota. Above 1, clients are throttled."""


class RateSensor(Sensor):
    """A sensor of bytes per second, or of percent of a thread's time.

    `longest_ms` limits the throttle time, unless it is 0.
    """

    __slots__ = ("_longest_ms", "_rate")

    def __init__(self, limit: Limit, rate: Rate, now_ms: int, longest_ms: int = 0) -> None:
        super().__init__(limit, now_ms)
        self._rate = rate
        self._longest_ms = longest_ms

    def record(self, value: float, now_ms: int) -> int:
        """Record a value, and return the throttle time."""
        self.used_ms = now_ms
        self._rate.record(value, now_ms)
        return self.throttle_time_ms(now_ms)

    def record_if_allowed(self, value: float, now_ms: int) -> int:
        """Record a value and return 0. If it would exceed the quota, only return the throttle time, without recording.

        The first value is allowed even if it exceeds the quota. Otherwise a value above the quota of all windows could
        never pass.
        """
        self.used_ms = now_ms
        unused = self._rate.measure(now_ms) <= 0
        self._rate.record(value, now_ms)
        throttle_time_ms = 0 if unused else self.throttle_time_ms(now_ms)
        if throttle_time_ms:
            self._rate.record(-value, now_ms)
        return throttle_time_ms

    def throttle_time_ms(self, now_ms: int) -> int:
        """Return the throttle time for the values so far."""
        throttle_time_ms = self._rate.throttle_time_ms(self.limit.value, now_ms)
        return min(throttle_time_ms, self._longest_ms) if self._longest_ms else throttle_time_ms

    def value(self, now_ms: int) -> float:
        return self._rate.measure(now_ms)

    def utilization(self, now_ms: int) -> float:
        return self._rate.measure(now_ms) / self.limit.value


class TokenSensor(Sensor):
    """A sensor of controller mutations, which takes tokens from a bucket (KIP-599)."""

    __slots__ = ("_bucket",)

    def __init__(self, limit: Limit, bucket: TokenBucket, now_ms: int) -> None:
        super().__init__(limit, now_ms)
        self._bucket = bucket

    def take(self, count: int, now_ms: int) -> int:
        """Take tokens, even if there are too few. Return the throttle time then."""
        self.used_ms = now_ms
        self._bucket.take(count, self.limit.value, now_ms)
        return self._bucket.throttle_time_ms(self.limit.value, now_ms)

    def take_if_allowed(self, count: int, now_ms: int) -> int:
        """Take tokens and return 0. If the bucket is below zero, only return the throttle time."""
        self.used_ms = now_ms
        throttle_time_ms = self._bucket.throttle_time_ms(self.limit.value, now_ms)
        if not throttle_time_ms:
            self._bucket.take(count, self.limit.value, now_ms)
        return throttle_time_ms

    def value(self, now_ms: int) -> float:
        return self._bucket.tokens(self.limit.value, now_ms)

    def utilization(self, now_ms: int) -> float:
        return 1 - self._bucket.tokens(self.limit.value, now_ms) / (self.limit.value * self._bucket.burst_s)


class SharedUse:
    """The use of quotas by all workers.

    Once a second, each worker publishes its use of each quota, in thousandths. A worker may use its fair part, and
    whatever the others leave. So a client with one connection gets its whole quota, and the clients of all workers
    together stay within it, measured over the time window of rates. The caller holds the manager's lock.
    """

    def __init__(self, share: WorkerShare) -> None:
        self._share = share
        self._published: dict[SensorKey, int] = {}

    def limit(self, key: SensorKey, part: Limit) -> Limit:
        """Return the quota that this worker has now. `part` is its fair part."""
        counts = self._share.counts
        if counts is None:
            return part
        others = max(0, counts.count(_name(key)) - self._published.get(key, 0))
        left = part.value * self._share.count * (1 - others / _WHOLE)
        return part._replace(value=max(part.value, left))

    def publish(self, sensors: Mapping[SensorKey, Sensor], parts: Mapping[SensorKey, Limit], now_ms: int) -> None:
        """Publish the use of the rate sensors, and set how much of its quota each of them has now."""
        counts = self._share.counts
        if counts is None:
            return
        for key, part in parts.items():
            sensor = sensors[key]
            if isinstance(sensor, RateSensor):
                use = sensor.value(now_ms) / (part.value * self._share.count)
                self._publish(key, min(_MOST, int(_WHOLE * use)))
                target, now = self.limit(key, part).value, sensor.limit.value
                # In steps: workers that see the same state and take all of it would oscillate together.
                value = min(target, now + max(part.value, target - now) / _STEPS)
                sensor.limit = part._replace(value=max(part.value, value))
        self._forget(parts)

    def _publish(self, key: SensorKey, use: int) -> None:
        before = self._published.get(key, 0)
        if use != before and self._share.counts is not None:
            self._share.counts.add(_name(key), use - before)
            self._published[key] = use

    def _forget(self, kept: Collection[SensorKey]) -> None:
        for key in self._published.keys() - set(kept):
            self._publish(key, 0)
            del self._published[key]


def _name(key: SensorKey) -> str:
    return "quota " + " ".join(key)
