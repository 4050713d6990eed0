"""Settings of all types of groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from klamm_broker.consumer_group_settings import ConsumerGroupSettings
from klamm_broker.share_group_settings import ShareGroupSettings
from klamm_broker.streams_group_settings import StreamsGroupSettings

_BOUNDED: Final = {
    "consumer": ("session.timeout.ms", "heartbeat.interval.ms"),
    "share": (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    ),
    "streams": ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
}
"""By type of group: what a group's own config may set between `min` and `max`."""


@dataclass(frozen=True, kw_only=True)
class GroupTypeSettings(ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings):
    """The keys `group.consumer.*`, `group.share.*` and `group.streams.*` of `[broker]`."""

    def group_type_problems(self) -> Iterator[tuple[str, str]]:
        """Values that contradict each other."""
        yield from self.consumer_group_problems()
        yield from self.streams_group_problems()
        for kind, keys in _BOUNDED.items():
            for key in keys:
                yield from self._bounds_problems(f"group.{kind}.", key)
            interval, timeout = (f"group.{kind}.{key}" for key in ("heartbeat.interval.ms", "session.timeout.ms"))
            if self._value(interval) >= self._value(timeout):
                yield interval, f"{self._value(interval)} is not less than {timeout} ({self._value(timeout)})"

    def _bounds_problems(self, prefix: str, key: str) -> Iterator[tuple[str, str]]:
        value, minimum, maximum = (self._value(f"{prefix}{bound}{key}") for bound in ("", "min.", "max."))
        if minimum > maximum:
            yield f"{prefix}min.{key}", f"{minimum} is greater than {prefix}max.{key} ({maximum})"
        elif not minimum <= value <= maximum:
            yield f"{prefix}{key}", f"{value} is not between {minimum} and {maximum}"

    def _value(self, name: str) -> int:
        value: int = getattr(self, name.replace(".", "_"))
        return value
