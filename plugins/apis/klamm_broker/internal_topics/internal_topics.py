"""`InternalTopics`: copies data from the store to internal topics, outside requests.

A commit of the store schedules the work, which takes at most a tenth of a processor. A topic lags behind the store by
about a tenth of a second. Data that changed several times meanwhile is written once, in its last state. A comparison of
topic and store finds data that could not be written or that a crash left unwritten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from klamm import KafkaError
from klamm.runtime import Clock, Scheduler
from klamm_broker.internal_topics.topic_projection import TopicProjection
from klamm_broker.log.manager import LogManager
from klamm_broker.storage.store import Store
from klamm_broker.topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from klamm_broker.topics.topic import Partition
from klamm_broker.topics.topic_registry import TopicRegistry

log = logging.getLogger("klamm.broker.internal_topics")

_LINGER_MS: Final = 100
_SLICE_NS: Final = 20_000_000
_PAUSES_PER_SLICE: Final = 10
_RETRY_MS: Final = 1000
_PUT_AGREEING: Final = "INSERT INTO internal_topics (name) VALUES (?)"

WRITTEN: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)


class InternalTopics:
    """All internal topics that are written. Any thread may call any method.

    Life cycle: `open()` → `start()` → `close()`. Call `close` when no more writes are submitted to the store.
    """

    def __init__(
        self,
        store: Store,
        topics: TopicRegistry,
        logs: LogManager,
        clock: Clock,
        open_later: Callable[[Iterable[Partition]], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._logs = logs
        self._open_later = open_later
        # Grows only under `_work_lock`.
        self._projections: dict[str, TopicProjection] = {}
        # Held while topics are written.
        self._work_lock = threading.Lock()
        # Protects the flag for scheduled work.
        self._lock = threading.Lock()
        self._scheduler: Scheduler | None = None
        self._is_scheduled = False
        self._paused_until_ns = 0
        # True if the last work failed: further failures are not logged.
        self._fails = False

    def open(self) -> None:
        """Follow the store for the existing topics. Raises StoreError."""
        agreeing = {name for (name,) in self._store.read("SELECT name FROM internal_topics")}
        if agreeing:
            # The notes of the last stop are deleted before anything else changes. From now on a power failure may leave
            # a topic behind the store, so the next start must compare them.
            self._store.write_and_wait([("DELETE FROM internal_topics", ())])
        for projection in self._needed():
            topic = self._topics.get(projection.name)
            if topic is not None:
                projection.begin(topic, agrees=self._logs.is_clean and projection.name in agreeing)

    def start(self, scheduler: Scheduler) -> None:
        """Start the work on the scheduler's thread."""
        self._scheduler = scheduler
        for name in WRITTEN:
            topic = self._topics.get(name)
            if topic is not None:
                self.partitions_added(topic.partitions)
        self._store.on_commit = self._store_changed

    def partitions_added(self, partitions: Sequence[Partition]) -> None:
        """Open the logs of new partitions. Of an internal topic, open only logs that have records."""
        if not partitions[0].topic.is_internal:
            self._open_later(partitions)
            return
        self._open_later(each for each in partitions if self._has_records(each))
        self._schedule(0)

    def catch_up(self) -> None:
        """Write all data that was submitted to the store before this call. Raises KafkaError."""
        self._store.write_and_wait([])
        with self._work_lock:
            for projection in self._needed():
                projection.work(lambda: True)

    def close(self) -> None:
        """Write all data that is due, and note in the store which topics agree with it."""
        self._scheduler = None
        try:
            self._store.write_and_wait([])
            with self._work_lock:
                # A comparison would delay the stop for too long, so the next start makes it.
                following = [each for each in self._projections.values() if each.agrees]
                for projection in following:
                    projection.work(lambda: True)
            if following:
                self._store.submit([(_PUT_AGREEING, (each.name,)) for each in following])
        except KafkaError as error:
            log.warning("internal topics will be compared again at the next start: %s", error)

    def _needed(self) -> Iterable[TopicProjection]:
        """Return the projections of all topics that exist or existed."""
        for name in WRITTEN:
            if name not in self._projections and self._topics.get(name) is not None:
                from klamm_broker.internal_topics.sources import SOURCES

                self._projections[name] = TopicProjection(
                    name, SOURCES[name], self._store, self._topics, self._clock, self._has_records
                )
        return self._projections.values()

    def _has_records(self, partition: Partition) -> bool:
        if partition.opened_log is not None:
            return True
        return (self._logs.data_dir / f"{partition.topic.name}-{partition.index}").is_dir()

    def _store_changed(self) -> None:
        if not self._is_scheduled:
            self._schedule(_LINGER_MS)

    def _schedule(self, delay_ms: float) -> None:
        with self._lock:
            if self._scheduler is not None and not self._is_scheduled:
                self._is_scheduled = True
                pause_ms = (self._paused_until_ns - self._clock.monotonic_ns()) / 1e6
                self._scheduler.schedule(max(delay_ms, pause_ms), self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        started_ns = self._clock.monotonic_ns()
        has_more = self._work_until(started_ns + _SLICE_NS)
        ended_ns = self._clock.monotonic_ns()
        self._paused_until_ns = ended_ns + _PAUSES_PER_SLICE * (ended_ns - started_ns)
        if has_more:
            self._schedule(_RETRY_MS if self._fails else 0)

    def _work_until(self, deadline_ns: int) -> bool:
        """Write data that is due, until the deadline. Return True if there may be more, or if a write failed."""
        has_more = failed = False
        with self._work_lock:
            for projection in self._needed():
                try:
                    has_more |= projection.work(lambda: self._clock.monotonic_ns() < deadline_ns)
                except Exception as error:
                    has_more = failed = True
                    projection.compare_again()
                    if not self._fails:
                        unexpected = None if isinstance(error, KafkaError) else error
                        log.error(
                            "%s cannot be written and will be compared again: %s",
                            projection.name,
                            error,
                            exc_info=unexpected,
                        )
        self._fails = failed
        return has_more
