"""`SharedUse`: the part of a rate quota that this worker may use, if several worker processes serve the clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from klamm.shared import WorkerShare
from klamm_throttling.limits import Limit
from klamm_throttling.sensors import RateSensor, Sensor

SensorKey: TypeAlias = tuple[str, str, str]
"""Quota key, and the user and client id that share the sensor."""

PERIOD_MS: Final = 1000
_WHOLE: Final = 1000
_STEPS: Final = 4
_MOST: Final = 100 * _WHOLE


class SharedUse:
    """Each worker publishes how much of each quota it uses, in thousandths, once a second.

    It may then use what the others leave, and always its fair part. So a client with one connection gets its whole
    quota, and clients of all workers together stay within it, measured over the time window of rates. The caller holds
    the lock of the sensors.
    """

    def __init__(self, share: WorkerShare) -> None:
        self._share = share
        self._published: dict[SensorKey, int] = {}

    def limit(self, key: SensorKey, part: Limit) -> Limit:
        """The quota of this worker now; `part` is its fair part."""
        counts = self._share.counts
        if counts is None:
            return part
        others = max(0, counts.count(_name(key)) - self._published.get(key, 0))
        left = part.value * self._share.count * (1 - others / _WHOLE)
        return part._replace(value=max(part.value, left))

    def publish(self, sensors: Mapping[SensorKey, Sensor], parts: Mapping[SensorKey, Limit], now_ms: int) -> None:
        """Publish the use of the sensors of rates, and set how much each may use."""
        counts = self._share.counts
        if counts is None:
            return
        for key, part in parts.items():
            sensor = sensors[key]
            if isinstance(sensor, RateSensor):
                use = sensor.value(now_ms) / (part.value * self._share.count)
                self._publish(key, min(_MOST, int(_WHOLE * use)))
                target, now = self.limit(key, part).value, sensor.limit.value
                # Upwards in steps: workers that all see the same state would oscillate together.
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
