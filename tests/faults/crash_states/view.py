"""What a workload has asked for and got, as of a crash at one place of its recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.faults.crash_states.workload import Event, Workload


class View:
    """The events of a workload before one operation. `held` counts, for each promise, the items that it was held to."""

    def __init__(self, work: Workload, index: int, *, power_cut: bool) -> None:
        self.work = work
        self.power_cut = power_cut
        self.held: Counter[str] = Counter()
        self._index = index
        self.events = [event for event in work.events if self.has_started(event)]

    def has_started(self, event: Event) -> bool:
        """Whether it had been asked for, so that it may be in effect."""
        return event.started_at <= self._index

    def is_certain(self, event: Event) -> bool:
        """Whether it had been acknowledged."""
        return event.acknowledged_at is not None and event.acknowledged_at <= self._index

    def of(self, kind: str, key: Any) -> Iterator[Event]:
        """The events of a kind about something, the oldest first."""
        return (event for event in self.events if event.kind == kind and event.key == key)

    def possible(self, kind: str, key: Any) -> list[Any]:
        """The values that something may have: as of the last certain event, or of a later one."""
        values: list[Any] = [None]
        for event in self.of(kind, key):
            values = [event.value] if self.is_certain(event) else [*values, event.value]
        return values
