"""`PartitionLog`: the records of one partition. Follows Kafka's `UnifiedLog` for a partition with one replica."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from klamm import ErrorCode, KafkaError
from klamm.wire.batch_headers import check_count
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.wire.records import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ControlRecordType,
    EndTransactionMarker,
    RecordBatchHeader,
    assign_offset,
    encode_end_transaction_marker,
    read_header,
    set_max_timestamp,
    validate_produced,
)
from klamm_broker.log.checkpoints import sync_partition_metadata
from klamm_broker.log.config import LogConfig
from klamm_broker.log.files import stored_directory
from klamm_broker.log.produce_validation import is_costly_to_prepare, prepare
from klamm_broker.log.producer_state import BatchMetadata, ProducerStateEntry, ProducerStateManager
from klamm_broker.log.record_check import UnpacksToMoreError, check_records
from klamm_broker.log.segment import LogSegment, aborted_transaction
from klamm_broker.log.segmented_log import SegmentedLog, storage_error

log = logging.getLogger("klamm.broker.log")


_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_T = TypeVar("_T")


class AppendResult(NamedTuple):
    """The offsets of an appended batch. `log_append_time_ms` is -1 if records keep their own timestamps.

    If `duplicate` is True, an idempotent producer has sent the batch before: these are the offsets of the first append,
    and `log_append_time_ms` is the largest timestamp of the batch. If `flush_due` is True, the settings require a sync
    before the response, and the caller must make it.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    flush_due: bool = False


class PartitionLog(SegmentedLog):
    """The records of one partition, in segments on disk.

    Any thread may call any method. Changes take the log's lock, and hold it for a write to the page cache, but for a
    sync only if a segment with a failed write is rolled. Reads take no lock. A failed write raises
    KafkaError(KAFKA_STORAGE_ERROR) and leaves the log unchanged; the next append tries again. Two failures make the log
    refuse appends until it is opened again: a failed sync, because the content of the disk is then unknown, and a
    compaction that failed between two renames.
    """

    __slots__ = ()

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self.config = config

    # Appending

    def append(
        self,
        records: bytes | bytearray | memoryview,
        *,
        now_ms: int,
        leader_epoch: int = 0,
        defer_flush: bool = False,
        max_unpacked_bytes: int = MAX_UNCOMPRESSED_BYTES,
    ) -> AppendResult:
        """Append one batch of a producer. A writable buffer is changed in place, and not kept.

        The batch is synced if `flush.messages` requires this. With `defer_flush`, the caller must make the sync: see
        `AppendResult`.

        Raises UnpacksToMoreError for a batch that cannot be checked within `max_unpacked_bytes`; KafkaError: the errors
        of `validate_produced`, `check_records` and `prepare`, RECORD_LIST_TOO_LARGE for a batch larger than a segment,
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
        """
        config = self.config
        batch: bytearray | memoryview = _writable(records)
        header = validate_produced(batch, config.max_message_bytes)
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        if size_bytes != len(batch):
            batch = memoryview(batch)[:size_bytes]
        limits = self._context.batch_limits
        if header.records_count > limits.max_records or not self._context.validates_records:
            check_count(header, limits)
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        prepares = config.prepares_all or header.base_timestamp_ms < NO_TIMESTAMP or header.max_timestamp_ms > latest_ms
        if prepares and max_unpacked_bytes < MAX_UNCOMPRESSED_BYTES and is_costly_to_prepare(header, config, now_ms):
            raise UnpacksToMoreError
        if self._context.validates_records:
            check_records(batch, header, max_unpacked_bytes, limits, config.max_decompressed_message_bytes)
        if prepares:
            batch, header = prepare(batch, header, config, now_ms)
            size_bytes = len(batch)
        if size_bytes > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch has {size_bytes} bytes, but a segment has at most {config.segment_bytes}.",
            )
        append_time_ms = now_ms if config.log_append_time else NO_TIMESTAMP
        is_idempotent = (
            header.producer_id > NO_PRODUCER_ID
        )  # As in Kafka, ids below -1 also mean that the batch has no producer id.
        with self._lock:
            duplicate = self._producers.check_batch(header) if is_idempotent else None
            if duplicate is None:
                base_offset = self._write(batch, header, now_ms, leader_epoch)
                last_offset = base_offset + header.last_offset_delta
                if is_idempotent:
                    self._producers.add_batch(header, base_offset, header.max_timestamp_ms)
                self._publish(last_offset + 1)
        if duplicate is not None:
            return self._repeated(duplicate, now_ms, defer_flush)
        if last_offset - self.recovery_point < config.flush_messages - 1:
            return AppendResult(base_offset, last_offset, append_time_ms, self.log_start_offset)
        if not defer_flush:
            self.flush(now_ms)
        return AppendResult(base_offset, last_offset, append_time_ms, self.log_start_offset, flush_due=defer_flush)

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
        """Write the marker that commits or aborts a producer's open transaction.

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
        if self.config.log_append_time:
            set_max_timestamp(batch, header.attributes | LOG_APPEND_TIME, now_ms)
            header = read_header(batch)
        marker = EndTransactionMarker(kind, coordinator_epoch)
        with self._lock:
            self._producers.check_marker(header, marker)
            offset = self._write(batch, header, now_ms, leader_epoch)
            completed = self._producers.add_marker(header, marker, offset, now_ms)
            if completed is not None and completed.is_aborted:
                self._tail[1].transaction_index.append(aborted_transaction(completed))
            self._publish(offset + 1)
        if offset - self.recovery_point >= self.config.flush_messages - 1:
            self.flush(now_ms)
        return AppendResult(offset, offset, NO_TIMESTAMP, self.log_start_offset)

    def _repeated(self, batch: BatchMetadata, now_ms: int, defer_flush: bool) -> AppendResult:
        """Return the result for a batch that was sent again. Raises KafkaError if the batch may not be on the disk."""
        if self._refusal is not None:
            raise KafkaError(self._refusal.error_code, self._refusal.message)
        flush_due = batch.last_offset - self.recovery_point >= self.config.flush_messages - 1
        if flush_due and not defer_flush:
            self.flush(now_ms)
        return AppendResult(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp_ms,
            self.log_start_offset,
            True,
            flush_due and defer_flush,
        )

    def _write(self, batch: bytearray | memoryview, header: RecordBatchHeader, now_ms: int, leader_epoch: int) -> int:
        """Write a batch at the end, without publishing it; return its base offset. Raises KafkaError."""
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
            if active not in self._cut:
                self._cut = (*self._cut, active)
            if not self._disk_refuses:
                log.error("%s: appends fail: %s", self.directory, error)
                self._disk_refuses = True
            raise storage_error(error) from error
        if self._disk_refuses:
            log.warning("%s: appends succeed again", self.directory)
            self._disk_refuses = False
        return base_offset

    # Producers

    def active_producers(self) -> list[ProducerStateEntry]:
        """Return the present state of the producers that the log remembers."""
        with self._lock:
            return [entry.copy() for entry in self._producers.entries.values()]

    def knows_producer(self, producer_id: int) -> bool:
        """Return True if the log remembers this producer."""
        with self._lock:
            return producer_id in self._producers.entries

    def with_producers(self, work: Callable[[ProducerStateManager], _T]) -> _T:
        """Call a function with the log's producer state, under the log's lock, and return its result."""
        with self._lock:
            return work(self._producers)

    # Durability

    def flush_due(self, now_ms: int) -> None:
        """Sync the records for which a sync is due by the settings: rolled segments, and after `flush.ms` all
        records.
        """
        end_offset, active, _size_bytes, _stable_offset = self._tail
        if self.recovery_point >= end_offset:
            self._flushed_ms = now_ms
        elif now_ms - self._flushed_ms >= self.config.flush_ms:
            self.flush(now_ms)
        elif self.recovery_point < active.base_offset:
            self._sync(active.base_offset)

    def flush(self, now_ms: int) -> None:
        """Sync all records appended so far. Raises KafkaError."""
        self._sync(self.end_offset)
        self._flushed_ms = now_ms

    def flush_to(self, offset: int) -> None:
        """Sync the records below an offset. Raises KafkaError if they are not durable afterwards."""
        self._sync(offset)
        refusal = self._refusal
        if refusal is not None and self.recovery_point < offset:
            raise KafkaError(refusal.error_code, refusal.message)

    def _sync(self, offset: int) -> None:
        """Sync the records below an offset. Raises KafkaError."""
        with self._one_flush():
            if self._refusal is not None:
                return
            if self._cut:
                self._sync_cuts()
            if offset <= self.recovery_point:
                return
            segments = self._segments
            ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
            try:
                self._sync_new_directory()
                for segment, end_offset in zip(segments, ends, strict=True):
                    if segment.base_offset < offset and end_offset > self.recovery_point:
                        self._sync_segment(segment)
                self._context.operations.sync_directory(self.directory)
            except OSError as error:
                raise self._sync_failed(error) from error
            self.recovery_point = offset

    def is_in_new_directory(self, number: int) -> None:
        """Let the first sync of records also sync the topic id, and the directory if its number is not 0."""
        self._new_directory = number

    def _sync_new_directory(self) -> None:
        if self._new_directory is not None:
            sync_partition_metadata(self._context.operations, self.directory)
            self._context.new_directories.sync(self._new_directory)
            self._new_directory = None

    def _one_flush(self) -> threading.Lock:
        """Return the lock that is held during a flush."""
        lock = self._flush_lock
        if lock is None:
            with self._lock:
                lock = self._flush_lock
                if lock is None:
                    lock = self._flush_lock = threading.Lock()  # Flushes run one at a time.
        return lock

    def _sync_cuts(self) -> None:
        with self._lock:
            segments, self._cut = self._cut, ()
        try:
            for segment in segments:
                self._sync_segment(segment)
        except OSError as error:
            with self._lock:
                self._cut = (*segments, *self._cut)
            raise self._sync_failed(error) from error

    def _sync_failed(self, error: OSError) -> KafkaError:
        if error.errno in _NO_DESCRIPTOR:
            # The file could not be opened for the sync, so the disk has lost no data. A later sync includes these
            # records.
            log.error("%s cannot be synced now: %s", self.directory, error)
            return storage_error(error)
        return self._refuse(error)

    def _sync_segment(self, segment: LogSegment) -> None:
        try:
            segment.sync()
        except FileNotFoundError:
            if segment in self._segments:
                raise

    def release_indexes(self) -> None:
        """Free the memory of indexes that look-ups in old segments have loaded."""
        for segment in self._segments[:-1]:
            segment.release_indexes()

    def close(self, now_ms: int) -> None:
        """Sync all records, store the producers' state, and close the files. Raises KafkaError."""
        with self._lock:
            if self._refusal is not None:
                raise KafkaError(self._refusal.error_code, self._refusal.message)
            # A log that never had a record has no state to store. There may be many thousand such logs.
            if self.end_offset:
                self._storage(self._seal)
        self.flush(now_ms)
        with self._lock:
            self._refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The log is closed.")
        self.close_files()

    def _seal(self) -> None:
        self._tail[1].seal()
        self._snapshots.write(self._producers, self.end_offset)

    def abandon(self, directory: Path) -> None:
        """Mark the log as deleted after its directory was renamed. Threads that have the log can still read it."""
        with self._lock:
            self._refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._directory = stored_directory(directory)
            for segment in self._segments:
                segment.directory_moved(directory)
        self.close_files()

    def release_files(self) -> None:
        """Close the files that no reader uses. The next use opens them again."""
        for segment in self._segments:
            segment.file.release()

    def close_files(self) -> None:
        """Close the files without further writes. Readers that have them open can still read them."""
        for segment in self._segments:
            segment.close()


def _writable(records: bytes | bytearray | memoryview) -> bytearray | memoryview:
    if isinstance(records, bytearray) or (isinstance(records, memoryview) and not records.readonly):
        return records
    return bytearray(records)
