"""`TopicLog`: appends to the partitions of an internal topic, reads them, and shortens them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from klamm import ErrorCode, KafkaError
from klamm.runtime import Clock
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES
from klamm.wire.records import Record, decode_records, encode_batch, iterate_batches
from klamm_broker.cluster.coordinators import partition_for
from klamm_broker.internal_topics.record_source import CoordinatorRecord
from klamm_broker.log.files import FileRegion
from klamm_broker.topics.topic import Partition, Topic

log = logging.getLogger("klamm.broker.internal_topics")

_BATCH_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 1_048_576
_NO_EPOCH: Final = -1
_LONG: Final = 1000
"""Number of superfluous records at which a partition is shortened."""
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class TopicLog:
    """The records of one topic. Only its `TopicProjection` calls it, on one thread at a time."""

    def __init__(self, topic: Topic, clock: Clock) -> None:
        self.topic = topic
        self.partitions = topic.partitions
        self._clock = clock
        self._most_records: dict[int, int] = {}

    def long_partitions(self) -> list[int]:
        """Return the open partitions that have grown by many records since they were shortened."""
        return [
            each.index
            for each in self.partitions
            if (opened := each.opened_log) is not None
            and opened.end_offset - opened.log_start_offset > self._most_records.get(each.index, _LONG)
        ]

    def delete_before(self, index: int, offset: int) -> None:
        """Delete the records before an offset. Raises KafkaError."""
        opened = self.partitions[index].log
        opened.delete_records(offset)
        self._most_records[index] = 2 * (opened.end_offset - offset) + _LONG

    def partition_for(self, owner: str) -> int:
        """Return the partition with the records of an owner, computed as Kafka's coordinators compute it."""
        return partition_for(owner, len(self.partitions))

    def append(self, records: Iterable[CoordinatorRecord]) -> None:
        """Append records to their partitions, in order. Raises KafkaError; records before the failed one stay."""
        by_partition: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for owner, key, value in records:
            by_partition.setdefault(self.partition_for(owner), []).append((key, value))
        for index, wanted in by_partition.items():
            self.append_to(index, wanted)

    def append_to(self, index: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Append pairs of key and value to one partition. Raises KafkaError; records before the failed one stay."""
        partition = self.partitions[index]
        now_ms = self._clock.wall_ms()
        try:
            for batch in _batches(Record(timestamp_ms=now_ms, key=key, value=value) for key, value in records):
                self._append(partition, batch, now_ms)
        finally:
            partition.wake_fetches()

    def _append(self, partition: Partition, batch: list[Record], now_ms: int) -> None:
        encoded = encode_batch(batch)
        size_bytes = len(encoded)
        try:
            partition.append(encoded, now_ms=now_ms, max_unpacked_bytes=MAX_UNCOMPRESSED_BYTES)
        except KafkaError as error:
            if error.error_code not in _TOO_LARGE:
                raise
            if len(batch) == 1:
                log.error("%s: a record of %d bytes is left out: %s", partition, size_bytes, error)
            else:
                for record in batch:
                    self._append(partition, [record], now_ms)
            return
        traffic = self.topic.traffic
        traffic.bytes_in += size_bytes
        traffic.messages_in += len(batch)

    def last_values(self, index: int, found: dict[bytes, bytes | None]) -> Iterator[None]:
        """Fill `found` with the last value of each key of a partition. Yield after each read of the log.

        Raises KafkaError.
        """
        partition = self.partitions[index]
        offset, end_offset = partition.log.log_start_offset, partition.log.end_offset
        while offset < end_offset:
            got = partition.read(offset, _READ_BYTES, _NO_EPOCH, min_one_message=True, committed_only=False)
            records = got.records
            data = records.read_bytes() if isinstance(records, FileRegion) else records
            if isinstance(records, FileRegion):
                records.close()
            before = offset
            for header, batch in iterate_batches(data):
                offset = header.last_offset + 1
                if not header.is_control:
                    found.update((each.key, each.value) for each in decode_records(batch) if each.key is not None)
            if offset == before:
                return
            yield


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size_bytes = 0
    for record in records:
        if size_bytes >= _BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(record)
        size_bytes += len(record.key or b"") + len(record.value or b"")
    if batch:
        yield batch
