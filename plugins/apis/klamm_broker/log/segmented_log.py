"""`SegmentedLog`: opens, rolls, drops, replaces and cuts the segments of a log. `PartitionLog` adds appends and
syncs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.log.checkpoints import CorruptCheckpointError, LeaderEpochs
from klamm_broker.log.config import LogConfig
from klamm_broker.log.context import LogContext
from klamm_broker.log.files import stored_directory
from klamm_broker.log.reader import LogReader
from klamm_broker.log.recovery import load_log, new_segment, replay
from klamm_broker.log.retention import count_deletable
from klamm_broker.log.segment import DELETED_SUFFIX, MAX_RELATIVE_OFFSET, OFFSET_ENTRY_BYTES, LogSegment

log = logging.getLogger("klamm.broker.log")

_T = TypeVar("_T")


class SegmentedLog(LogReader):
    """A log as a sequence of segments. Any thread may call the public methods; a change holds the log's lock."""

    __slots__ = (
        "_context",
        "_cut",
        "_disk_refuses",
        "_durable_start",
        "_flush_lock",
        "_flushed_ms",
        "_lock",
        "_new_directory",
        "_producers",
        "_refusal",
        "_snapshots",
        "config",
        "_directory",
        "partition",
        "recovery_point",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        context: LogContext,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        is_clean: bool = False,
    ) -> None:
        """Open the log of an existing directory. `load_log` checks and repairs it. Raises OSError."""
        loaded = load_log(
            directory,
            context,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            is_clean=is_clean,
        )
        leader_epochs = _leader_epochs(directory, context, loaded.end_offset)
        active = loaded.segments[-1]
        active.resume()
        end_offset = loaded.end_offset
        super().__init__(
            tuple(loaded.segments),
            (end_offset, active, active.size_bytes, end_offset),
            loaded.log_start_offset,
            leader_epochs,
        )
        self.topic = topic
        # The id has 16 bytes. The manager sets it.
        self.topic_id = b""
        self.partition = partition
        self._directory = stored_directory(directory)
        # The directory's number in `NewDirectories`, or 0, while the directory may not be durable; None once it is
        # durable.
        self._new_directory: int | None = None
        self.recovery_point = loaded.recovery_point
        self._context = context
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._refusal: KafkaError | None = None
        self._disk_refuses = False
        # The checkpoint of log start offsets has this offset or a later one.
        self._durable_start = loaded.log_start_offset
        # Segments from whose end the bytes of a failed write were cut, until the cut is durable. Guarded by `_lock`.
        self._cut: tuple[LogSegment, ...] = ()
        self._flushed_ms = context.clock.wall_ms()
        # Protects the segments, the offsets and the refusal. One thread changes the log at a time.
        self._lock = threading.Lock()
        # Held during a flush, while appends continue. None before the first flush: most logs have none until they are
        # closed.
        self._flush_lock: threading.Lock | None = None
        self.config = config
        self._publish(end_offset)

    @property
    def directory(self) -> Path:
        """Return the directory of the files."""
        return Path(self._directory)

    @property
    def is_writable(self) -> bool:
        """Return True if the log accepts records, because it is not closed, deleted or failed."""
        return self._refusal is None

    def flush_to(self, offset: int) -> None:
        """Sync the records below an offset. Raises KafkaError."""
        raise NotImplementedError

    def _publish(self, end_offset: int) -> None:
        """Make the written records visible to readers."""
        active = self._segments[-1]
        undecided = self._producers.first_undecided_offset
        stable_offset = end_offset if undecided is None else max(undecided, self.log_start_offset)
        self._tail = (end_offset, active, active.size_bytes, stable_offset)

    # Segments

    def _must_roll(
        self, active: LogSegment, batch_bytes: int, last_offset: int, timestamp_ms: int, now_ms: int
    ) -> bool:
        config = self.config
        if active.size_bytes + batch_bytes > config.segment_bytes:
            return True
        if last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            return True
        first_timestamp_ms = active.first_timestamp()
        if first_timestamp_ms >= 0:
            # As in Kafka, a batch without timestamps never ends a segment whose first batch has one.
            age_ms = timestamp_ms - first_timestamp_ms
        else:
            if active.created_ms is None:
                active.created_ms = now_ms
            age_ms = now_ms - active.created_ms
        if age_ms > config.roll_ms - active.roll_jitter_ms:
            return True
        return active.index_bytes + OFFSET_ENTRY_BYTES > config.segment_index_bytes

    def roll(self, now_ms: int) -> None:
        """Start a new segment, unless the active one is empty. Raises KafkaError."""
        with self._lock:
            if self._tail[2]:
                self._storage(lambda: self._roll(now_ms))

    def _roll(self, now_ms: int) -> LogSegment:
        end_offset, active, _size_bytes, stable_offset = self._tail
        active.seal()
        if active in self._cut:
            # Recovery checks only the segment of the recovery point and later ones; from now on that is the new
            # segment.
            active.sync()
            self._cut = tuple(segment for segment in self._cut if segment is not active)
        self._snapshots.write(self._producers, end_offset)
        segment = self._new_segment(end_offset, now_ms)
        self._segments = (*self._segments, segment)
        self._tail = (end_offset, segment, 0, stable_offset)
        self._context.flush_later(self, end_offset)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        config = self.config
        segment = new_segment(self.directory, base_offset, self._context)
        segment.created_ms = now_ms
        if config.segment_jitter_ms:
            segment.roll_jitter_ms = self._context.random_below(min(config.segment_jitter_ms, config.roll_ms))
        return segment

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop segments that are too old, too many, or before the log's start. Return their number. Raises
        KafkaError.
        """
        with self._lock:
            if self._refusal is not None:
                return 0
            return self._storage(lambda: self._delete_old_segments(now_ms))

    def _delete_old_segments(self, now_ms: int) -> int:
        segments = self._segments
        count = count_deletable(segments, self.log_start_offset, self.config, now_ms)
        if count == len(segments):
            count = self._roll_to_delete(now_ms, count)
        if count == 0:
            return 0
        old, self._segments = self._segments[:count], self._segments[count:]
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        self._publish(self.end_offset)
        # Done first, because the later steps may fail on a full disk.
        self._drop(old)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        return count

    def _roll_to_delete(self, now_ms: int, count: int) -> int:
        """Roll the log, so that all segments with records can be dropped. Return the number of segments to drop."""
        try:
            self._roll(now_ms)
        except OSError as error:
            if count == 1:
                raise
            log.warning("%s: cannot roll; it continues in its last segment: %s", self.directory, error)
            return count - 1
        return count

    def _drop(self, segments: tuple[LogSegment, ...], *, keep_snapshot_of: int | None = None) -> None:
        """Rename the files of segments that readers can no longer find. The files are deleted after a delay."""
        due_ms = self._context.clock.wall_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            segment.move(self.directory, DELETED_SUFFIX)
            segment.close()
            self._context.deletions.add(segment.paths(), due_ms)
        for segment in segments:
            if segment.base_offset != keep_snapshot_of:
                self._snapshots.remove(segment.base_offset)

    def replace_segments(self, old: tuple[LogSegment, ...], replacement: LogSegment) -> bool:
        """Replace adjacent segments by a compacted segment. Its files have the suffix `.swap`.

        Returns False if one of the segments was deleted meanwhile, or if the log accepts no more records. If renaming
        fails midway, the log accepts no more records, and the next start completes the renaming.
        """
        with self._lock:
            segments = self._segments
            if self._refusal is not None or not set(old) <= set(segments[:-1]):
                return False
            first = segments.index(old[0])
            self._segments = (*segments[:first], replacement, *segments[first + len(old) :])
            try:
                self._drop(old, keep_snapshot_of=replacement.base_offset)
                replacement.move(self.directory)
            except OSError as error:
                self._refuse(error)
            return True

    def _refuse(self, error: OSError) -> KafkaError:
        """Accept no more records until the log is opened again."""
        log.error("%s accepts no more records: %s", self.directory, error)
        self._refusal = storage_error(error)
        return self._refusal

    def delete_records(self, offset: int) -> None:
        """Move the log's start forward to an offset. The new start survives a crash. Follows KIP-107.

        Raises KafkaError: OFFSET_OUT_OF_RANGE above the high watermark, KAFKA_STORAGE_ERROR.
        """
        with self._lock:
            if offset > self.high_watermark:
                raise self._out_of_range(offset)
            if offset <= self._durable_start:
                return
            if offset > self.log_start_offset:
                self.log_start_offset = offset
                self._publish(self.end_offset)
            self._storage(lambda: self.leader_epochs.truncate_from_start(offset))
        self._storage(self._context.start_offset_moved)
        self._durable_start = max(self._durable_start, offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the records from an offset on, with the whole batch that holds the offset. Raises KafkaError."""
        with self._lock:
            if offset < self.end_offset:
                self._storage(lambda: self._truncate_to(max(offset, 0)))

    def _truncate_to(self, offset: int) -> None:
        kept = tuple(segment for segment in self._segments if segment.base_offset <= offset)
        dropped = self._segments[len(kept) :]
        if not kept:
            kept = (self._new_segment(offset, self._context.clock.wall_ms()),)
        active = kept[-1]
        position = active.position_of(offset, active.size_bytes)
        end_offset = offset
        if position is not None and offset > self.log_start_offset:
            end_offset = max(self.log_start_offset, min(offset, active.header_at(position).base_offset))
        # The segments are published first, so that no reader finds a segment that is about to be removed.
        self._segments = kept
        self._tail = (end_offset, active, active.size_bytes if position is None else position, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        active.truncate_to(end_offset)
        self._drop(dropped)
        self.leader_epochs.truncate_from_end(end_offset)
        self._snapshots.remove_after(end_offset)
        start_offset = self._snapshots.load_latest(self._producers, self.log_start_offset, end_offset)
        replay(list(kept), self._producers, start_offset, end_offset)
        self._publish(end_offset)

    def _storage(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except OSError as error:
            log.error("%s: the disk fails: %s", self.directory, error)
            raise storage_error(error) from error


def storage_error(error: OSError) -> KafkaError:
    """Return the error that a client gets for a failed system call."""
    # The error has no path, because clients need not know it.
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.strerror or "The disk fails.")


def _leader_epochs(directory: Path, context: LogContext, end_offset: int) -> LeaderEpochs:
    """Return the stored leader epochs below the end of the log; without any if their file is corrupt."""
    leader_epochs = LeaderEpochs(directory, context.operations)
    try:
        leader_epochs.load()
    except CorruptCheckpointError as error:
        log.warning("%s: it is ignored", error)
    leader_epochs.truncate_from_end(end_offset)
    return leader_epochs
