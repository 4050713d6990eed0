"""`LogManager`: the logs of one data directory. Follows Kafka's `LogManager`, for one directory."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from klamm import KafkaError
from klamm.runtime import PLATFORM, SYSTEM_THREADS, Clock, Threads
from klamm.wire.batch_limits import DEFAULT_LIMITS, BatchLimits
from klamm_broker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_CONTENT,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
    read_partition_metadata,
    write_partition_metadata,
)
from klamm_broker.log.compaction_schedule import LogCompaction
from klamm_broker.log.config import LogConfig
from klamm_broker.log.context import LogContext, random_below
from klamm_broker.log.directory_lock import DirectoryLock
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import DEFAULT_MAX_OPEN_FILES, OpenFiles
from klamm_broker.log.flusher import LogFlusher
from klamm_broker.log.offset_checkpoints import OffsetCheckpoints
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.producer_state import UNLIMITED
from klamm_broker.log.producer_total import ProducerTotal
from klamm_broker.log.recovery import bytes_from
from klamm_broker.log.serial_worker import SerialWorker

log = logging.getLogger("klamm.broker.log")

_DELETE_SUFFIX: Final = "-delete"
_STRAY_SUFFIX: Final = "-stray"
_DELETED_DIRECTORY: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_PARTITION_DIRECTORY: Final = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+")
_MAX_NAME_BYTES: Final = 255
_QUICKLY_CHECKED_BYTES: Final = 65_536


class LogManager:
    """The logs of a data directory. It opens, finds and deletes logs; `Broker` calls the methods for periodic work.

    Any thread may call any method. One lock guards the table of logs. It is held while files are created, opened and
    renamed, but not for other work on files.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        clock: Clock,
        operations: FileOperations | None = None,
        max_open_files: int = DEFAULT_MAX_OPEN_FILES,
        random_below: Callable[[int], int] = random_below,
        validates_records: bool = True,
        batch_limits: BatchLimits = DEFAULT_LIMITS,
        max_producers: int = UNLIMITED,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self.data_dir = data_dir
        self._clock = clock
        self.flusher = LogFlusher()
        self.record_checker = SerialWorker("klamm-record-checker", threads)
        """The thread that appends batches whose check would delay the threads that serve clients."""
        self.producers = ProducerTotal(max_producers, lambda: self._table().values(), threads)
        self._context = LogContext(
            clock,
            operations,
            OpenFiles(max_open_files),
            random_below,
            partial(self._write_checkpoint, LOG_START_OFFSETS),
            self.flusher.request,
            validates_records=validates_records,
            batch_limits=batch_limits,
            data_dir=data_dir,
            producers=self.producers,
        )
        # Protects the map of logs, and the directories of partitions while they are created and removed.
        self._lock = threading.Lock()
        self._directory_lock = DirectoryLock(data_dir)
        self._checkpoints = OffsetCheckpoints(data_dir, self._context.operations)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.is_clean = False
        """True if the last shutdown synced all logs."""
        # Names of existing directories whose logs are not open.
        self._unopened: set[str] = set()
        self.compaction = LogCompaction(self._context, self._checkpoints, self._table, self._lock)

    def open(self) -> None:
        """Create the data directory if it does not exist, and lock it. Raises DataDirectoryLockedError, OSError."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._directory_lock.take()
        try:
            self._scan_directory()
        except BaseException:
            self._directory_lock.release()
            raise

    def _scan_directory(self) -> None:
        self.is_clean = (self.data_dir / CLEAN_SHUTDOWN).exists()
        self.forget_clean_shutdown()
        self._checkpoints.load()
        with os.scandir(self.data_dir) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
        leftovers = [self.data_dir / name for name in names if _DELETED_DIRECTORY.fullmatch(name)]
        self._unopened = {name for name in names if _PARTITION_DIRECTORY.fullmatch(name)}
        self._context.deletions.add(leftovers, due_ms=0)

    def forget_clean_shutdown(self) -> None:
        """Remove the marker of a clean shutdown, durably. Raises OSError."""
        operations = self._context.operations
        operations.remove(self.data_dir / CLEAN_SHUTDOWN)
        # Synced even if the file is missing, because an earlier start may have removed it and failed to sync.
        operations.sync_directory(self.data_dir)

    # Logs

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log if it is open."""
        return self._logs.get((topic, partition))

    def logs(self) -> list[PartitionLog]:
        """Return all open logs."""
        with self._lock:
            return list(self._logs.values())

    def opens_slowly(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Return True if opening the log would delay a request too long, because there is much to check after a
        crash.
        """
        key = (topic, partition)
        name = f"{topic}-{partition}"
        if self.is_clean or name not in self._unopened:
            return False
        recovery_point = self._checkpoints.offset(RECOVERY_POINTS, key, topic_id)
        return bytes_from(self.data_dir / name, recovery_point) > _QUICKLY_CHECKED_BYTES

    def make_room(self, topic: str, partitions: Iterable[int]) -> None:
        """Set aside directories that have the names of new partitions. Raises OSError."""
        for partition in partitions:
            if f"{topic}-{partition}" in self._unopened:
                self.set_aside(topic, partition)

    def get_or_create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """Return the log of a partition. Open or create the log if necessary. The topic id has 16 bytes. Raises
        OSError.

        A directory with this name that belongs to another topic is set aside with the suffix `-stray`. A new directory
        becomes durable with its first durable records.
        """
        key = (topic, partition)
        with self._lock:
            found = self._logs.get(key)
            if found is not None and found.topic_id == topic_id:
                return found
            directory = self.data_dir / f"{topic}-{partition}"
            new_directory = self._make_directory(directory, key, topic_id)
            # If the log cannot be opened, its directory still exists.
            self._unopened.add(directory.name)
            opened = PartitionLog(
                directory,
                topic,
                partition,
                config,
                self._context,
                log_start_offset=self._checkpoints.offset(LOG_START_OFFSETS, key, topic_id),
                recovery_point=self._checkpoints.offset(RECOVERY_POINTS, key, topic_id),
                is_clean=self.is_clean,
            )
            opened.topic_id = topic_id
            if not (self.is_clean and opened.recovery_point):
                opened.is_in_new_directory(new_directory)
            self._checkpoints.open(key, topic_id)
            self._logs[key] = opened
            self.producers.opened(opened)
            self.compaction.opened(key, self._checkpoints.offset(CLEANER_OFFSETS, key, topic_id))
            self._unopened.discard(directory.name)
            return opened

    def _make_directory(self, directory: Path, key: TopicPartition, topic_id: bytes) -> int:
        """Create the directory if it does not exist, and write the topic's id to it. Return the number of a new
        directory, else 0.
        """
        operations = self._context.operations
        if directory.is_dir():
            found_id = read_partition_metadata(directory)
            if found_id == topic_id:
                return 0
            if directory.name not in os.listdir(self.data_dir):
                reason = "another topic's name differs only in case, which this file system does not distinguish"
                raise FileExistsError(errno.EEXIST, reason, str(directory))
            if found_id is None:
                log.warning("%s has no topic id: it is taken for the topic of that name", directory)
                write_partition_metadata(operations, directory, topic_id)
                return 0
            self._set_aside(directory, key)
        # Done before the directory is created, so that no checkpoint of an older topic applies to it.
        self._checkpoints.forget([key])
        operations.mkdir(directory)
        self._unopened.add(directory.name)
        write_partition_metadata(operations, directory, topic_id)
        return self._context.new_directories.made()

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename a directory that belongs to no topic, with the suffix `-stray`. Raises OSError."""
        with self._lock:
            self._set_aside(self.data_dir / f"{topic}-{partition}", (topic, partition))

    def _set_aside(self, directory: Path, key: TopicPartition) -> None:
        aside = _unused_path(self.data_dir, key, self._context.random_below, _STRAY_SUFFIX)
        known = read_partition_metadata(directory) is not None
        reason = "belongs to another topic" if known else "does not name its topic"
        log.warning("%s %s: set aside as %s", directory, reason, aside.name)
        self._context.operations.rename(directory, aside)
        self._unopened.discard(directory.name)
        self._forget(key, aside)

    def _forget(self, key: TopicPartition, directory: Path) -> PartitionLog | None:
        """Forget the log of a renamed directory. Return the log if it was open."""
        dropped = self._logs.pop(key, None)
        self.compaction.dropped(key, dropped)
        if dropped is not None:
            dropped.abandon(directory)
        return dropped

    def delete(self, topic: str, partition: int) -> None:
        """Delete one partition like `delete_all`. Raises OSError."""
        for failure in self.delete_all([(topic, partition)]).values():
            raise failure

    def delete_all(self, keys: Collection[TopicPartition]) -> dict[str, OSError]:
        """Delete existing partitions, open or not. Their files are deleted after `file.delete.delay.ms`.

        The deletion, also of the entries in the checkpoints, is durable on return. A failure does not stop the other
        deletions; the errors are returned by topic. A partition whose deletion failed accepts no more records.
        """
        failures: dict[str, OSError] = {}
        for key in keys:
            try:
                self._delete(key)
            except OSError as error:
                log.error("%s-%d cannot be removed: %s", *key, error)
                failures[key[0]] = error
        try:
            self._checkpoints.forget(keys)
            self._context.operations.sync_directory(self.data_dir)
        except OSError as error:
            log.error("%s: the deletion of %d partitions cannot be synced to disk: %s", self.data_dir, len(keys), error)
            failures = {topic: error for topic, _partition in keys} | failures
        return failures

    def _delete(self, key: TopicPartition) -> None:
        name = f"{key[0]}-{key[1]}"
        with self._lock:
            if key not in self._logs and name not in self._unopened:
                return
            directory = self.data_dir / name
            renamed = _unused_path(self.data_dir, key, self._context.random_below, _DELETE_SUFFIX)
            is_there = True
            if not PLATFORM.keeps_open_files and (opened := self._logs.get(key)) is not None:
                opened.release_files()
            try:
                self._context.operations.rename(directory, renamed)
            except FileNotFoundError:
                is_there = False
            except OSError:
                self._forget(key, directory)
                self._unopened.add(name)
                raise
            self._unopened.discard(name)
            dropped = self._forget(key, renamed)
            delay_ms = dropped.config.file_delete_delay_ms if dropped is not None else 0
            if is_there:
                self._context.deletions.add([renamed], self._clock.wall_ms() + delay_ms)

    # Periodic work

    def flush_due(self, now_ms: int) -> None:
        """Sync the logs for which a sync is due by their settings."""
        self._for_each(lambda each: each.flush_due(now_ms))

    def delete_old_segments(self, now_ms: int) -> None:
        """Apply the retention of each log."""
        self._for_each(lambda each: each.delete_old_segments(now_ms))

    def checkpoint(self, now_ms: int) -> None:
        """Write the recovery points, remove dropped files that are due, and free indexes that are not in use."""
        self._context.deletions.run_due(now_ms)
        self._for_each(PartitionLog.release_indexes)
        with _failures_logged(self.data_dir):
            self._write_checkpoint(RECOVERY_POINTS)

    def checkpoint_start_offsets(self, _now_ms: int) -> None:
        """Write the log start offsets."""
        with _failures_logged(self.data_dir):
            self._write_checkpoint(LOG_START_OFFSETS)

    def _for_each(self, work: Callable[[PartitionLog], object]) -> None:
        """Run a function for every log. A failure does not stop the calls for the others."""
        for each in self.logs():
            try:
                work(each)
            except KafkaError as error:
                log.error("%s: %s", each.directory, error)

    def _write_checkpoint(self, name: str) -> None:
        def collect() -> tuple[Iterable[TopicPartition], dict[TopicPartition, int]]:
            table = self._table()
            if name == RECOVERY_POINTS:
                return table, {key: each.recovery_point for key, each in table.items()}
            # Written even if the first segment starts there, because the removal of earlier segments may not be durable
            # yet.
            return table, {key: each.log_start_offset for key, each in table.items() if each.log_start_offset}

        self._checkpoints.replace(name, collect)

    def _table(self) -> dict[TopicPartition, PartitionLog]:
        # The lock is not taken, because its holders may wait for a checkpoint. A dictionary is copied in one step.
        return dict(self._logs)

    # End

    def close(self, threads: int = 1) -> None:
        """Close all logs, in several threads. Write the marker of a clean shutdown if all were closed. Never raises
        KafkaError.
        """
        from concurrent.futures import ThreadPoolExecutor

        self.record_checker.close()
        self.producers.close()
        self.flusher.close()
        now_ms = self._clock.wall_ms()
        # A directory that was not opened is as the last process has left it.
        is_clean = self.is_clean or not self._unopened
        # Each log waits for the disk several times. A disk syncs several files together faster than one by one.
        with ThreadPoolExecutor(threads, "klamm-log-closing") as pool:
            is_clean &= all(list(pool.map(partial(_close, now_ms=now_ms), self.logs())))
        with contextlib.suppress(OSError):
            self._write_checkpoint(RECOVERY_POINTS)
            self._write_checkpoint(LOG_START_OFFSETS)
            if is_clean:
                self._context.operations.replace_content(
                    self.data_dir / CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_CONTENT, sync=True
                )
        with self._lock:
            self._logs = {}
        self._directory_lock.release()


def _close(each: PartitionLog, now_ms: int) -> bool:
    """Close the log. Return True if all its records are on the disk."""
    try:
        each.close(now_ms)
    except KafkaError as error:
        log.error("%s was not closed cleanly: %s", each.directory, error)
        each.close_files()
        return False
    return True


def _unused_path(data_dir: Path, key: TopicPartition, random_below: Callable[[int], int], suffix: str) -> Path:
    """Return an unused name for a renamed directory, in Kafka's form, shortened to the file system's limit."""
    topic, partition = key
    ending = f"-{partition}.{random_below(2**128):032x}{suffix}"
    return data_dir / (topic[: _MAX_NAME_BYTES - len(ending)] + ending)


@contextlib.contextmanager
def _failures_logged(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.error("%s: a checkpoint cannot be written: %s", data_dir, error)
