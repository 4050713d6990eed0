"""The schedule of compaction (the logs that are due, and the end of each log's last pass), and the thread for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from klamm import KafkaError
from klamm.runtime import SYSTEM_THREADS, Joinable, Threads
from klamm_broker.log.checkpoints import CLEANER_OFFSETS, TopicPartition
from klamm_broker.log.context import LogContext
from klamm_broker.log.offset_checkpoints import OffsetCheckpoints
from klamm_broker.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from klamm_broker.log.cleaner import DirtyRange


log = logging.getLogger("klamm.broker.log")


class LogCompaction:
    """The compaction of a `LogManager`'s logs. `logs` returns the open logs, and never waits."""

    def __init__(
        self,
        context: LogContext,
        checkpoints: OffsetCheckpoints,
        logs: Callable[[], Mapping[TopicPartition, PartitionLog]],
        lock: threading.Lock,
    ) -> None:
        self._context = context
        self._checkpoints = checkpoints
        self._logs = logs
        # The manager's lock. No log is opened or dropped while it is held.
        self._lock = lock
        self._stopping = threading.Event()
        # The end offset of the last pass, for logs that were compacted.
        self._cleaned_offsets: dict[TopicPartition, int] = {}
        # Logs with a damaged batch, which are not compacted.
        self._uncleanable: set[PartitionLog] = set()

    def opened(self, key: TopicPartition, cleaned_offset: int) -> None:
        """Note that a log was opened, and that it was compacted up to an offset. The caller holds the manager's
        lock.
        """
        if cleaned_offset:
            self._cleaned_offsets[key] = cleaned_offset

    def dropped(self, key: TopicPartition, log: PartitionLog | None) -> None:
        """Forget a deleted partition, and its log if the log was open. The caller holds the manager's lock."""
        self._cleaned_offsets.pop(key, None)
        if log is not None:
            self._uncleanable.discard(log)

    def has_cleanable(self, now_ms: int) -> bool:
        """Return True if any log is due for compaction."""
        return next(self._cleanable(now_ms), None) is not None

    def clean(self, now_ms: int) -> None:
        """Compact the logs that are due. This may take long, and `stop` ends it. One thread at a time may call it."""
        from klamm_broker.log.cleaner import Cleaner, CleaningStoppedError

        cleaner = Cleaner(self._context, should_stop=self._stopping.is_set)
        for each, dirty in self._cleanable(now_ms):
            try:
                self._note_cleaned(each, cleaner.clean(each, dirty, now_ms))
            except CleaningStoppedError:
                return
            except OSError as error:
                log.error("%s was not compacted: %s", each.directory, error)
            except KafkaError as error:
                log.error("%s is no longer compacted: %s", each.directory, error)
                self._uncleanable.add(each)

    def stop(self) -> None:
        """Make a running `clean` return soon. Later calls of it return at once."""
        self._stopping.set()

    def _note_cleaned(self, cleaned: PartitionLog, offset: int) -> None:
        key = cleaned.topic, cleaned.partition
        with self._lock:
            # The log may have been deleted meanwhile, and another one created in its place.
            if self._logs().get(key) is not cleaned:
                return
            self._cleaned_offsets[key] = offset
        self._checkpoints.replace(CLEANER_OFFSETS, lambda: (self._logs(), dict(self._cleaned_offsets)))

    def _cleanable(self, now_ms: int) -> Iterator[tuple[PartitionLog, DirtyRange]]:
        for key, each in self._logs().items():
            if not each.config.compact or not each.is_writable or each in self._uncleanable:
                continue
            # Imported once there is a log to compact, because most brokers start without one.
            from klamm_broker.log.cleaner import dirty_range

            try:
                dirty = dirty_range(each, self._cleaned_offsets.get(key, 0), now_ms)
            except OSError as error:
                log.error("%s cannot be checked for compaction: %s", each.directory, error)
                continue
            if dirty.is_due(each.config):
                yield each, dirty


class BackgroundCompaction:
    """The thread that runs compaction, one run at a time. Any thread may call it."""

    def __init__(self, schedule: LogCompaction, threads: Threads = SYSTEM_THREADS) -> None:
        self._schedule = schedule
        self._start = threads.start
        self._run: Joinable | None = None
        # Held while logs are compacted.
        self._running = threading.Lock()

    def run(self, now_ms: int) -> None:
        """Start a run if there is something to compact and no run is in progress."""
        if self._schedule.has_cleanable(now_ms) and self._running.acquire(blocking=False):
            try:
                self._run = self._start(partial(self._clean, now_ms), "klamm-log-cleaner")
            except RuntimeError:
                # The system cannot start a thread. The next run tries again.
                self._running.release()
                raise

    def _clean(self, now_ms: int) -> None:
        try:
            self._schedule.clean(now_ms)
        except Exception:
            log.exception("compaction failed")
        finally:
            self._running.release()

    def stop(self) -> None:
        """End a run soon, and wait until it has ended."""
        self._schedule.stop()
        if self._run is not None:
            self._run.join()
        with self._running:
            pass
