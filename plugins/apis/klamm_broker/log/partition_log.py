"""`PartitionLog`: the records of one partition. Follows Kafka's `UnifiedLog` for a partition with one replica."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from klamm import ErrorCode, KafkaError
from klamm.wire.records import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ControlRecordType,
    EndTransactionMarker,
    RecordBatchHeader,
    assign_offset,
    encode_end_transaction_marker,
    read_header,
    validate_produced,
)
from klamm_broker.log.checkpoints import CorruptCheckpointError, LeaderEpochs
from klamm_broker.log.config import LogConfig
from klamm_broker.log.context import LogContext
from klamm_broker.log.produced import needs_preparation, prepare
from klamm_broker.log.producer_state import BatchMetadata, ProducerStateEntry
from klamm_broker.log.reader import LogReader
from klamm_broker.log.recovery import load_log, new_segment, replay
from klamm_broker.log.retention import count_deletable
from klamm_broker.log.segment import (
    DELETED_SUFFIX,
    MAX_RELATIVE_OFFSET,
    OFFSET_ENTRY_BYTES,
    LogSegment,
    aborted_transaction,
)

log = logging.getLogger("klamm.broker.log")

_T = TypeVar("_T")


class AppendResult(NamedTuple):
    """Where a batch has got its place. `log_append_time_ms` is -1 if records keep their own timestamps.

    `duplicate`: an idempotent producer has sent it before, and this is the place it got then.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class PartitionLog(LogReader):
    """The records of one partition, in segments on disk.

    Threads: any may call anything. Changes take the log's lock, which is held for a write to the page cache, never for
    a sync; reads take no lock. What the disk refuses raises KafkaError(KAFKA_STORAGE_ERROR) and leaves the log as it
    was: the next append tries again. Only after a failed sync, when nobody knows what the disk has, appends are refused
    until the log is opened again.
    """

    __slots__ = (
        "_context",
        "_flush_lock",
        "_flushed_ms",
        "_lock",
        "_producers",
        "_refusal",
        "_slow",
        "_snapshots",
        "config",
        "directory",
        "partition",
        "recovery_point",
        "topic",
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
        """Open the log of a directory that exists, and recover it unless it `is_clean`. Raises OSError."""
        loaded = load_log(
            directory,
            context,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            is_clean=is_clean,
        )
        leader_epochs = LeaderEpochs(directory, context.operations)
        try:
            leader_epochs.load()
        except CorruptCheckpointError as error:
            log.warning("%s: doing without it", error)
        leader_epochs.truncate_from_end(loaded.end_offset)
        active = loaded.segments[-1]
        active.resume()
        undecided = loaded.producers.first_undecided_offset
        end_offset = loaded.end_offset
        stable_offset = end_offset if undecided is None else undecided
        super().__init__(
            tuple(loaded.segments),
            (end_offset, active, active.size_bytes, stable_offset),
            loaded.log_start_offset,
            leader_epochs,
        )
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.recovery_point = loaded.recovery_point
        self._context = context
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._refusal: KafkaError | None = None
        self._flushed_ms = context.clock.wall_ms()
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Let the log follow other settings from now on."""
        self.config = config
        self._slow = needs_preparation(config)

    # Appending

    def append(self, records: bytes | bytearray | memoryview, *, now_ms: int, leader_epoch: int = 0) -> AppendResult:
        """Append one batch of a producer; a writable buffer is changed in place, and not kept.

        Raises KafkaError: what `validate_produced` and `prepare` raise, RECORD_LIST_TOO_LARGE for a batch larger than a
        segment, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
        """
        config = self.config
        batch: bytearray | memoryview = _writable(records)
        header = validate_produced(batch, config.max_message_bytes)
        if self._slow or header.max_timestamp_ms > now_ms + config.message_timestamp_after_max_ms:
            batch, header = prepare(batch, header, config, now_ms)
        if len(batch) > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch has {len(batch)} bytes, a segment {config.segment_bytes}.",
            )
        append_time_ms = now_ms if config.log_append_time else NO_TIMESTAMP
        with self._lock:
            if header.producer_id != NO_PRODUCER_ID:
                duplicate = self._producers.check_batch(header)
                if duplicate is not None:
                    return self._repeated(duplicate)
            base_offset = self._write(batch, header, now_ms, leader_epoch)
            result = AppendResult(
                base_offset, base_offset + header.last_offset_delta, append_time_ms, self.log_start_offset
            )
            if header.producer_id != NO_PRODUCER_ID:
                self._producers.add_batch(header, base_offset, header.max_timestamp_ms)
            self._publish(result.last_offset + 1)
        if result.last_offset >= self.recovery_point + config.flush_messages:
            self.flush(now_ms)
        return result

    def append_end_transaction_marker(
        self,
        kind: ControlRecordType,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now_ms: int,
        leader_epoch: int = 0,
    ) -> AppendResult:
        """Commit or abort what a producer has written in its open transaction.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        batch = encode_end_transaction_marker(
            kind,
            timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
        header = read_header(batch)
        marker = EndTransactionMarker(kind, coordinator_epoch)
        with self._lock:
            self._producers.check_marker(header, marker)
            offset = self._write(batch, header, now_ms, leader_epoch)
            completed = self._producers.add_marker(header, marker, offset, now_ms)
            if completed is not None and completed.is_aborted:
                self._tail[1].transaction_index.append(aborted_transaction(completed))
            self._publish(offset + 1)
        if offset >= self.recovery_point + self.config.flush_messages:
            self.flush(now_ms)
        return AppendResult(offset, offset, NO_TIMESTAMP, self.log_start_offset)

    def _repeated(self, batch: BatchMetadata) -> AppendResult:
        return AppendResult(batch.first_offset, batch.last_offset, batch.timestamp_ms, self.log_start_offset, True)

    def _write(self, batch: bytearray | memoryview, header: RecordBatchHeader, now_ms: int, leader_epoch: int) -> int:
        """Write a batch behind the end, without publishing it; its base offset. Raises KafkaError."""
        if self._refusal is not None:
            raise KafkaError(self._refusal.error_code, self._refusal.message)
        base_offset, active, size_bytes, _stable_offset = self._tail
        last_offset = base_offset + header.last_offset_delta
        try:
            if size_bytes and self._must_roll(active, len(batch), last_offset, header.max_timestamp_ms, now_ms):
                active = self._roll(now_ms)
            if leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(leader_epoch, base_offset)
            assign_offset(batch, base_offset, leader_epoch)
            active.append(batch, base_offset, last_offset, header.max_timestamp_ms, self.config.index_interval_bytes)
        except OSError as error:
            log.error("%s: the disk refuses an append: %s", self.directory, error)
            raise _storage_error(error) from error
        return base_offset

    def _publish(self, end_offset: int) -> None:
        """Let readers see what was written."""
        active = self._segments[-1]
        undecided = self._producers.first_undecided_offset
        self._tail = (end_offset, active, active.size_bytes, end_offset if undecided is None else undecided)

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
        if first_timestamp_ms >= 0 and timestamp_ms >= 0:
            age_ms = timestamp_ms - first_timestamp_ms
        else:
            if active.created_ms is None:
                active.created_ms = now_ms
            age_ms = now_ms - active.created_ms
        if age_ms > config.segment_ms - active.roll_jitter_ms:
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
        self._snapshots.write(self._producers, end_offset)
        segment = self._new_segment(end_offset, now_ms)
        self._segments = (*self._segments, segment)
        self._tail = (end_offset, segment, 0, stable_offset)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        config = self.config
        segment = new_segment(self.directory, base_offset, self._context)
        segment.created_ms = now_ms
        if config.segment_jitter_ms:
            segment.roll_jitter_ms = self._context.random_below(min(config.segment_jitter_ms, config.segment_ms))
        return segment

    def delete_old_segments(self, now_ms: int) -> int:
        """Drop segments that are too old, too many, or before the log's start; how many. Raises KafkaError."""
        with self._lock:
            if self._refusal is not None:
                return 0
            return self._storage(lambda: self._delete_old_segments(now_ms))

    def _delete_old_segments(self, now_ms: int) -> int:
        segments = self._segments
        count = count_deletable(segments, self.log_start_offset, self.config, now_ms)
        if count == 0:
            return 0
        if count == len(segments):
            self._roll(now_ms)
        old, self._segments = self._segments[:count], self._segments[count:]
        self.log_start_offset = max(self.log_start_offset, self._segments[0].base_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self._drop(old)
        return count

    def _drop(self, segments: tuple[LogSegment, ...]) -> None:
        """Rename the files of segments that readers no longer find, and let them go after a while."""
        due_ms = self._context.clock.wall_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            self._snapshots.remove(segment.base_offset)
            segment.move(self.directory, DELETED_SUFFIX)
            segment.close()
            self._context.deletions.add(segment.paths(), due_ms)

    def replace_segments(self, old: tuple[LogSegment, ...], replacement: LogSegment) -> None:
        """Put a compacted segment, whose files have the suffix `.swap`, in the place of others that follow each other.

        Raises KafkaError; the next start finishes what failed.
        """
        with self._lock:
            segments = self._segments
            first = segments.index(old[0])
            self._segments = (*segments[:first], replacement, *segments[first + len(old) :])

            def swap() -> None:
                self._drop(old)
                replacement.move(self.directory)

            self._storage(swap)

    def delete_records(self, offset: int) -> None:
        """Move the log's start forward to an offset; it stays moved after a crash. Follows KIP-107.

        Raises KafkaError: OFFSET_OUT_OF_RANGE behind the high watermark, KAFKA_STORAGE_ERROR.
        """
        with self._lock:
            if offset > self.high_watermark:
                raise self._out_of_range(offset)
            if offset <= self.log_start_offset:
                return
            self.log_start_offset = offset
            self._storage(lambda: self.leader_epochs.truncate_from_start(offset))
        self._storage(self._context.start_offset_moved)

    def truncate_to(self, offset: int) -> None:
        """Drop the records from an offset on, with the whole batch that holds it. Raises KafkaError."""
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
        if position is not None and active.size_bytes:
            end_offset = min(offset, active.header_at(position).base_offset)
        # Readers first: none may find what is about to go.
        self._segments = kept
        self._tail = (end_offset, active, active.size_bytes if position is None else position, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        active.truncate_to(end_offset)
        self._drop(dropped)
        self.leader_epochs.truncate_from_end(end_offset)
        self._snapshots.remove_behind(end_offset)
        start_offset = self._snapshots.load_latest(self._producers, self.log_start_offset, end_offset)
        replay(list(kept), self._producers, start_offset, end_offset)
        self._publish(end_offset)

    # Producers

    def active_producers(self) -> list[ProducerStateEntry]:
        """The producers that the log remembers."""
        with self._lock:
            return list(self._producers.entries.values())

    def expire_producers(self, now_ms: int, producer_id_expiration_ms: int) -> None:
        """Forget producers that have not written for so long."""
        with self._lock:
            self._producers.remove_expired(now_ms, producer_id_expiration_ms)

    # Durability

    def flush_due(self, now_ms: int) -> None:
        """Sync what the settings want synced by now: segments that were rolled, and all after `flush.ms`."""
        end_offset, active, _size_bytes, _stable_offset = self._tail
        if self.recovery_point >= end_offset:
            self._flushed_ms = now_ms
        elif now_ms - self._flushed_ms >= self.config.flush_ms:
            self.flush(now_ms)
        elif self.recovery_point < active.base_offset:
            self._sync(active.base_offset)

    def flush(self, now_ms: int) -> None:
        """Sync all that was appended so far. Raises KafkaError."""
        self._sync(self.end_offset)
        self._flushed_ms = now_ms

    def _sync(self, offset: int) -> None:
        """Sync the records below an offset. Raises KafkaError."""
        with self._flush_lock:
            if offset <= self.recovery_point or self._refusal is not None:
                return
            segments = self._segments
            ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
            try:
                for segment, end_offset in zip(segments, ends, strict=True):
                    if segment.base_offset < offset and end_offset > self.recovery_point:
                        self._sync_segment(segment)
                self._context.operations.sync_directory(self.directory)
            except OSError as error:
                self._refusal = _storage_error(error)
                log.error("%s cannot be synced, and takes no more records: %s", self.directory, error)
                raise self._refusal from error
            self.recovery_point = offset

    def _sync_segment(self, segment: LogSegment) -> None:
        try:
            segment.sync()
        except FileNotFoundError:
            if segment in self._segments:
                raise

    def release_indexes(self) -> None:
        """Free the memory that look-ups in old segments took."""
        for segment in self._segments[:-1]:
            segment.release_indexes()

    def close(self, now_ms: int) -> None:
        """Sync everything, keep the producers' state, close the files. Raises KafkaError."""
        with self._lock:
            self._storage(self._seal)
        self.flush(now_ms)
        with self._lock:
            self._refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The log is closed.")
        self.close_files()

    def _seal(self) -> None:
        self._tail[1].seal()
        self._snapshots.write(self._producers, self.end_offset)

    def abandon(self, directory: Path) -> None:
        """The partition was deleted and its directory renamed. Readers that still have the log go on."""
        with self._lock:
            self._refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self.directory = directory
            for segment in self._segments:
                segment.directory_moved(directory)
        self.close_files()

    def close_files(self) -> None:
        """Close the files as they are; readers that have them open go on."""
        for segment in self._segments:
            segment.close()

    def _storage(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except OSError as error:
            log.error("%s: the disk refuses: %s", self.directory, error)
            raise _storage_error(error) from error


def _storage_error(error: OSError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def _writable(records: bytes | bytearray | memoryview) -> bytearray | memoryview:
    if isinstance(records, bytearray) or (isinstance(records, memoryview) and not records.readonly):
        return records
    return bytearray(records)
