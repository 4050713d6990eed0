"""`TransactionMarkers`: the markers that end a transaction in the logs of its partitions.

Follows Kafka's `TransactionMarkerChannelManager`, for partitions that are all on this node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm.runtime import SYSTEM_THREADS, Clock, Threads
from klamm.wire.records import ControlRecordType
from klamm_broker.log.flusher import LogFlusher
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.serial_worker import SerialWorker
from klamm_broker.topics.topic_registry import TopicRegistry
from klamm_broker.transactions.transaction import TopicPartition

log = logging.getLogger("klamm.broker.transactions")

Written: TypeAlias = "Callable[[KafkaError | None], None]"
"""A callback that is called once: with None when all markers are durable, or with the error if a marker failed."""

MissingMarkers: TypeAlias = "dict[TopicPartition, tuple[PartitionLog, int] | None]"
"""Partitions whose marker is not durable: None until the marker is appended, then its log and the offset to sync."""

_NOTHING_TO_END: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH))


class Marker(NamedTuple):
    """A control record that ends a transaction: commit or abort."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


class TransactionMarkers:
    """The writer of markers. Its own thread appends them, and the log flusher's thread syncs them. Any thread may call
    `submit`.
    """

    def __init__(
        self, topics: TopicRegistry, flusher: LogFlusher, clock: Clock, threads: Threads = SYSTEM_THREADS
    ) -> None:
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._worker = SerialWorker("klamm-transaction-markers", threads)

    def close(self) -> None:
        """Write the queued markers and end the thread."""
        self._worker.close()

    def submit(self, marker: Marker, missing: MissingMarkers, on_written: Written) -> None:
        """Write a marker to the `missing` partitions, except deleted ones and those whose producer has a newer epoch.

        After an error `missing` has the remaining partitions, for another `submit`.
        """
        self._worker.submit(lambda: self._write(marker, missing, on_written))

    def _write(self, marker: Marker, missing: MissingMarkers, on_written: Written) -> None:
        pending = _Pending(on_written)
        for topic_partition in list(missing):
            pending.add()
            self._write_one(marker, topic_partition, missing, pending)
        pending.done(None)

    def _write_one(
        self, marker: Marker, topic_partition: TopicPartition, missing: MissingMarkers, pending: _Pending
    ) -> None:
        def flushed(error: KafkaError | None) -> None:
            if error is not None and error.error_code in _NOTHING_TO_END:
                log.info("producer %d needs no marker in %s-%d: %s", marker.producer_id, *topic_partition, error)
                error = None
            if error is None:
                del missing[topic_partition]
            else:
                log.warning("no marker for producer %d in %s-%d: %s", marker.producer_id, *topic_partition, error)
            pending.done(error)

        try:
            appended = missing[topic_partition]
            if appended is None:
                appended = missing[topic_partition] = self._append(marker, topic_partition)
        except KafkaError as error:
            flushed(error)
        else:
            self._flusher.request(*appended, flushed)

    def flush(self, partitions: Iterable[TopicPartition], on_flushed: Written) -> None:
        """Sync the present records of all these partitions except deleted ones."""
        pending = _Pending(on_flushed)
        for name, index in partitions:
            topic = self._topics.get(name)
            partition = topic.partition(index) if topic is not None else None
            if partition is None:
                continue
            pending.add()
            try:
                found = partition.log
                self._flusher.request(found, found.end_offset, pending.done_if_there)
            except KafkaError as error:
                pending.done_if_there(error)
        pending.done(None)

    def append(self, marker: Marker, topic_partition: TopicPartition, on_flushed: Written) -> None:
        """Append one marker and sync it. Raises KafkaError like `Partition.append_marker`.

        UNKNOWN_TOPIC_OR_PARTITION: the partition does not exist.
        """
        self._flusher.request(*self._append(marker, topic_partition), on_flushed)

    def _append(self, marker: Marker, topic_partition: TopicPartition) -> tuple[PartitionLog, int]:
        name, index = topic_partition
        topic = self._topics.get(name)
        partition = topic.partition(index) if topic is not None else None
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        result = partition.append_marker(
            ControlRecordType.COMMIT if marker.committed else ControlRecordType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            now_ms=self._clock.wall_ms(),
        )
        return partition.log, result.last_offset + 1


class _Pending:
    """A count of partitions that are not durable yet. The count starts at 1, for a last `done` of the caller."""

    __slots__ = ("_count", "_error", "_lock", "_on_written")

    def __init__(self, on_written: Written) -> None:
        self._on_written = on_written
        # Protects the count of markers that are missing, and the first error.
        self._lock = threading.Lock()
        self._count = 1
        self._error: KafkaError | None = None

    def add(self) -> None:
        """Count one more partition."""
        with self._lock:
            self._count += 1

    def done_if_there(self, error: KafkaError | None) -> None:
        """Call `done` with the error, or without one if the partition needs no marker any more."""
        self.done(None if error is not None and error.error_code in _NOTHING_TO_END else error)

    def done(self, error: KafkaError | None) -> None:
        """Count one partition less. At 0, call `on_written` with the first error, if there was one."""
        with self._lock:
            self._error = self._error or error
            self._count -= 1
            is_last = self._count == 0
        if is_last:
            self._on_written(self._error)
