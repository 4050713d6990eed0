"""`View`: the requests and answers of a workload before a crash at one place of its recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.faults.crash_states.workload import Event, Workload


class View:
    """The events of a workload before one operation. `held` counts the checked items of each promise."""

    def __init__(self, work: Workload, index: int, *, power_cut: bool) -> None:
        self.work = work
        self.power_cut = power_cut
        self.held: Counter[str] = Counter()
        self._index = index
        self.events = [event for event in work.events if self.has_started(event)]

    def has_started(self, event: Event) -> bool:
        """Return True if the event had been requested, so that it may have taken effect."""
        return event.started_at <= self._index

    def is_certain(self, event: Event) -> bool:
        """Return True if the event had been acknowledged."""
        return event.acknowledged_at is not None and event.acknowledged_at <= self._index

    def of(self, kind: str, key: Any) -> Iterator[Event]:
        """Return the events of a kind for a key, the oldest first."""
        return (event for event in self.events if event.kind == kind and event.key == key)

    def possible(self, kind: str, key: Any) -> list[Any]:
        """Return the values that a key may have: that of the last certain event, and those of all later events."""
        values: list[Any] = [None]
        for event in self.of(kind, key):
            values = [event.value] if self.is_certain(event) else [*values, event.value]
        return values
