"""Metrics of share fetches and of loading partitions: Kafka's `SharePartitionMetrics`, `ShareGroupMetrics`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from klamm.metrics import Histogram
from klamm_broker.share.partition import Acquired

_NS_PER_US: Final = 1_000
_NEVER: Final = -1


class PartitionMeters:
    """Meters of one partition in one group. The partition's lock protects them."""

    __slots__ = ("_released_ns", "batch_messages", "lock_ratio", "lock_us")

    def __init__(self) -> None:
        self.batch_messages = Histogram()
        """Distribution of the number of records in each run that a fetch has acquired."""
        self.lock_us = Histogram()
        """Time for which fetches have held the partition."""
        self.lock_ratio = Histogram()
        """The time for which a fetch held the partition, in percent of the time since the previous fetch."""
        self._released_ns = _NEVER

    def fetched(self, began_ns: int, ended_ns: int, acquired: Sequence[Acquired]) -> None:
        """Count a fetch that held the partition and acquired these records."""
        held_ns = ended_ns - began_ns
        self.lock_us.add(held_ns // _NS_PER_US)
        if self._released_ns != _NEVER and ended_ns > self._released_ns:
            self.lock_ratio.add(held_ns * 100 // (ended_ns - self._released_ns))
        self._released_ns = ended_ns
        for each in acquired:
            self.batch_messages.add(each.last - each.first + 1)


class GroupMeters:
    """Meters of the fetches and the dead letters of one group."""

    __slots__ = ("acquire_us", "failed_letter_writes", "fetch_ratio", "letter_writes", "letters")

    def __init__(self) -> None:
        self.acquire_us = Histogram()
        """Time from a request to its records."""
        self.fetch_ratio = Histogram()
        """Partitions from which records were acquired, in percent of the partitions in the request."""
        self.letters = 0
        """Dead letters that were written."""
        self.letter_writes = 0
        """Number of writes of batches of letters; `failed_letter_writes` counts those that failed."""
        self.failed_letter_writes = 0


class ShareMeters:
    """Meters of all share groups, used from any thread."""

    def __init__(self) -> None:
        # Protects these meters and those of the groups.
        self._lock = threading.Lock()
        self._groups: dict[str, GroupMeters] = {}
        self.load_us = Histogram()
        """Time to load a partition's state."""

    def loaded(self, took_ns: int) -> None:
        """Count the loading of a partition's state."""
        with self._lock:
            self.load_us.add(took_ns // _NS_PER_US)

    def fetched(self, group_id: str, took_ns: int, acquired: int, wanted: int) -> None:
        """Count a request that read `wanted` partitions, and acquired records in `acquired` of them."""
        with self._lock:
            meters = self._groups.setdefault(group_id, GroupMeters())
            meters.fetch_ratio.add(acquired * 100 // wanted)
            if acquired:
                meters.acquire_us.add(took_ns // _NS_PER_US)

    def wrote_letters(self, group_id: str, count: int) -> None:
        """Count the write of a batch with `count` letters. `count` is 0 if the write failed."""
        with self._lock:
            meters = self._groups.setdefault(group_id, GroupMeters())
            meters.letters += count
            meters.letter_writes += 1
            meters.failed_letter_writes += not count

    def forget(self, group_id: str) -> None:
        """Remove the meters of a deleted group."""
        with self._lock:
            self._groups.pop(group_id, None)

    def of_groups(self) -> list[tuple[str, GroupMeters]]:
        """Return the meters of all groups at this moment."""
        with self._lock:
            return list(self._groups.items())
