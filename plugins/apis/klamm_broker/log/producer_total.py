"""`ProducerTotal`: limits the number of producers that all logs of a data directory remember.

Kafka forgets a producer `producer.id.expiration.ms` after its last batch, and does not limit the number of producers.
Here, if there are too many, the producers that were idle longest are forgotten earlier. The logs with the most
producers lose them, until these logs all have the same number. So a client that invents producers for one log does not
displace producers of other logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from klamm.runtime import SYSTEM_THREADS, Threads
from klamm_broker.log.producer_state import UNLIMITED, ProducerLimit, ProducerStateManager
from klamm_broker.log.serial_worker import SerialWorker

log = logging.getLogger("klamm.broker.log")

_T = TypeVar("_T")


class LogWithProducers(Protocol):
    """The methods of a log that `ProducerTotal` uses."""

    def with_producers(self, work: Callable[[ProducerStateManager], _T]) -> _T: ...


class ProducerTotal(ProducerLimit):
    """The count of all logs' producers. It checks the logs whenever new producers amount to a sixteenth of the limit.

    A separate thread makes the check, because it takes a second for a million producers. A log that reaches the limit
    alone, which can happen during its recovery, forgets some producers at once.
    """

    __slots__ = ("_is_due", "_lock", "_logs", "_new", "_worker")

    def __init__(
        self,
        limit: int = UNLIMITED,
        logs: Callable[[], Iterable[LogWithProducers]] = lambda: (),
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        super().__init__(limit)
        self._logs = logs
        self._worker = SerialWorker("klamm-producer-eviction", threads)
        self._new = 0
        self._is_due = False
        # Protects the counts.
        self._lock = threading.Lock()

    def opened(self, log: LogWithProducers) -> None:
        """Count the producers of a log that has been opened."""
        if count := log.with_producers(_count):
            self.added(count)

    def added(self, count: int = 1) -> None:
        with self._lock:
            self._new += count
            if self._is_due or self._new < self.step:
                return
            self._is_due = True
        self._worker.submit(self.evict)

    def count_evicted(self, count: int) -> None:
        with self._lock:
            super().count_evicted(count)

    @property
    def used(self) -> int:
        """Return the number of producers that the logs remember."""
        return sum(each.with_producers(_count) for each in self._logs())

    @property
    def highest_id(self) -> int:
        """Return the highest producer id that the logs remember; -1 if there is none."""
        return max((each.with_producers(lambda one: one.highest_id) for each in self._logs()), default=-1)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Make all logs forget the producers that have not written for this long."""
        for each in self._logs():
            each.with_producers(lambda one: one.remove_expired(now_ms, expiration_ms))

    def evict(self) -> None:
        """Make logs forget producers, if the number could exceed the limit before the next check."""
        with self._lock:
            self._new = 0
            self._is_due = False
        logs = [each for each in self._logs() if each.with_producers(_count)]
        used = self.used
        if used <= self.limit - 2 * self.step:
            return
        counts = [each.with_producers(lambda one: one.idle_count) for each in logs]
        # Producers with open transactions are never forgotten. They must not displace all others.
        floor = self.limit // (2 * len(logs))
        kept = max(floor, _level(counts, used - self.limit + 3 * self.step))
        evicted = 0
        for each, count in zip(logs, counts, strict=True):
            if count > kept:
                evicted += _evict(each, count - kept)
        self.count_evicted(evicted)
        if evicted:
            log.warning(
                "producer.id.max.entries (%d) is reached: the %d producers that were idle longest are forgotten",
                self.limit,
                evicted,
            )

    def close(self) -> None:
        """Wait for unfinished work."""
        self._worker.close()


def _count(producers: ProducerStateManager) -> int:
    return len(producers.entries)


def _evict(of: LogWithProducers, count: int) -> int:
    find = of.with_producers(lambda one: one.longest_idle(count))
    # This takes no lock, so that the log can be written meanwhile.
    found = find()
    return of.with_producers(lambda one: one.evict(found))


def _level(counts: Iterable[int], excess: int) -> int:
    """Return the number to which the largest counts must fall to remove `excess` in total."""
    descending = sorted(counts, reverse=True)
    total = 0
    for index, count in enumerate(descending, 1):
        total += count
        lower = descending[index] if index < len(descending) else 0
        if total - index * lower >= excess:
            return max(0, (total - excess) // index)
    return 0
