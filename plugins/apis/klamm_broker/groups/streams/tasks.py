"""Tasks of a Kafka Streams application: a partition of a subtopology, in one of three roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Task: TypeAlias = tuple[str, int]
"""The id of a subtopology, and the partition of its source topics."""

NO_TASKS: Final[frozenset[Task]] = frozenset()


class Tasks(NamedTuple):
    """The tasks of a member: active tasks, standby copies of state, and copies that are being warmed up."""

    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    @property
    def total(self) -> int:
        """Return the number of tasks."""
        return len(self.active) + len(self.standby) + len(self.warmup)

    def united(self, other: Tasks) -> Tasks:
        """Return the union of these tasks and others."""
        return Tasks(self.active | other.active, self.standby | other.standby, self.warmup | other.warmup)

    def within(self, other: Tasks) -> bool:
        """Return True if each of these tasks is among the others, in the same role."""
        return self.active <= other.active and self.standby <= other.standby and self.warmup <= other.warmup

    def touches(self, other: Tasks) -> bool:
        """Return True if any of these tasks is among the others, in the same role."""
        return not all(mine.isdisjoint(theirs) for mine, theirs in zip(self, other, strict=True))


NONE: Final = Tasks()


def by_subtopology(tasks: Iterable[Task]) -> Mapping[str, list[int]]:
    """Return the partitions of each subtopology, in order."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return found
