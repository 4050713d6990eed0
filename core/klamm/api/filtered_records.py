"""`RecordAccess`: the records of a partition in a Produce, Fetch or ShareFetch, for filters that read or change them.

A filter sees only records. This module handles compression, batches, regions of files, limits, and the encoding of
changed batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from klamm.api.context import ListenerContext
from klamm.runtime.shared_interpreter import SHARED_INTERPRETER
from klamm.wire.batch_headers import check_count
from klamm.wire.batch_limits import BatchLimits, check_room
from klamm.wire.compression import Codec, decompress
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.primitives import ReadBuffer
from klamm.wire.records import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    Record,
    RecordBatchHeader,
    encode_batch_like,
    encode_empty_batch,
    iterate_batches,
    iterate_records,
    validate_produced,
)

SMALL_UNPACKED_BYTES: Final = 64 * 1024
"""A batch of up to this size, and with up to `SMALL_RECORDS` records, does not wait for the turn of large requests."""
SMALL_RECORDS: Final = 100
_NO_SIZE_LIMIT: Final = 2**31
_INT64_SPAN: Final = 2**63
_BUFFERS: Final = (bytes, bytearray, memoryview)

Change = Callable[[Record], "Record | None"]
"""Maps a record to its replacement: the record itself if it does not change, None to drop it."""


class _NothingChangedError(Exception):
    """Raised to stop encoding if all records are the same as before."""


class RecordAccess:
    """Gives a filter access to the records of partitions. Create it in `open` of the filter; any thread may call it.

    The limits of one batch are the broker's (`record.max.count` and others), or their defaults if a gateway serves the
    listener. The number of records is checked before a batch is decompressed.
    """

    def __init__(self, listener: ListenerContext) -> None:
        self._services = listener.services

    @contextmanager
    def of(self, partition: Any) -> Iterator[PartitionRecords]:
        """Open the records of a partition for a `with` block: `for record in records`, `records.change`.

        `partition` is one of a ProduceRequest, or of the response to a Fetch or ShareFetch. If its records are a region
        of a file, this reads them into memory. Large batches wait for the turn of large requests, and keep the turn
        until the block ends.

        Raises KafkaError if a batch is invalid or exceeds a limit, now or when the records are read.
        """
        with ExitStack() as turns:
            yield PartitionRecords(partition, self._services.batch_limits, lambda: self._take_turn(turns))

    def _take_turn(self, turns: ExitStack) -> None:
        turns.enter_context(SHARED_INTERPRETER.turn(self._services.scheduler.schedule, may_wait=False))


class PartitionRecords:
    """The records of one partition. Iteration yields each record, without control records."""

    def __init__(self, partition: Any, limits: BatchLimits, take_turn: Callable[[], object]) -> None:
        self._partition = partition
        self._limits = limits
        self._take_turn: Callable[[], object] | None = take_turn
        self._is_produced = _is_produced(partition)
        if self._is_produced:
            header = validate_produced(partition.records or b"", _NO_SIZE_LIMIT)
            check_count(header, limits)
        else:
            into_memory(partition)

    def __iter__(self) -> Iterator[Record]:
        for header, batch in self._batches():
            if not header.is_control:
                yield from iterate_records(header, self._unpacked(header, batch))

    @property
    def count(self) -> int:
        """Return the number of records, according to the headers of the batches."""
        return sum(header.records_count for header, _ in self._batches() if not header.is_control)

    def contains(self, text: bytes) -> bool:
        """Return False if no key, value or header contains the text. This is far faster than reading each record.

        True does not prove that a record contains the text: e.g. two neighbouring fields or a length may have these
        bytes.
        """
        return any(text in self._unpacked(header, batch) for header, batch in self._batches() if not header.is_control)

    def change(self, change: Change, append: Iterable[Record] = ()) -> bool:
        """Replace each record by the result of `change`, or drop it if the result is None.

        Return False if no record has changed. Unchanged batches and control batches keep their bytes. `append` adds
        records to the batch of a Produce. Raises KafkaError(INVALID_RECORD) if a Produce would have no record left, or
        if the number of records in a batch with sequence numbers would change, because the producer counts them.
        """
        added = list(append)
        if added and not self._is_produced:
            raise ValueError("records can be appended only to those of a Produce")
        parts: list[ReadBuffer] = []
        changed = False
        for header, batch in self._batches():
            made = None if header.is_control else self._changed(header, batch, change, added)
            changed = changed or made is not None
            parts.append(batch if made is None else made)
        if changed:
            self._partition.records = b"".join(parts)
        return changed

    def _batches(self) -> Iterator[tuple[RecordBatchHeader, memoryview]]:
        # A truncated batch at the end is left out, in a Produce as in a Fetch.
        for header, batch in iterate_batches(self._partition.records or b""):
            check_count(header, self._limits)
            yield header, batch

    def _unpacked(self, header: RecordBatchHeader, batch: memoryview) -> bytes:
        codec, body = header.codec, batch[HEADER_BYTES:]
        if header.records_count > SMALL_RECORDS or len(body) > SMALL_UNPACKED_BYTES:
            self._wait()
        unpacked: ReadBuffer = body
        if codec is not Codec.NONE:
            allowed_bytes = self._limits.unpacked_bytes(len(body))
            try:
                unpacked = decompress(codec, body, min(SMALL_UNPACKED_BYTES, allowed_bytes))
            except KafkaError:
                # The library raises the same error for invalid data and for data that are too large.
                self._wait()
                unpacked = decompress(codec, body, allowed_bytes)
        check_room(header.records_count, len(unpacked))
        return bytes(unpacked)

    def _wait(self) -> None:
        take_turn, self._take_turn = self._take_turn, None
        if take_turn is not None:
            take_turn()

    def _changed(
        self, header: RecordBatchHeader, batch: memoryview, change: Change, append: list[Record]
    ) -> ReadBuffer | None:
        """Return the batch with the results of `change` and `append`; None if the batch does not change."""
        count = 0
        base_ms = header.delete_horizon_ms

        def records() -> Iterator[Record]:
            nonlocal count, base_ms
            changed = bool(append)
            for record in iterate_records(header, self._unpacked(header, batch)):
                made = change(record)
                changed = changed or made is not record
                if made is not None:
                    count += 1
                    base_ms = made.timestamp_ms if base_ms is None else base_ms
                    _check_timestamp(made.timestamp_ms, base_ms)
                    yield made._replace(offset=-1) if self._is_produced else made._replace(offset=record.offset)
            for record in append:
                count += 1
                base_ms = record.timestamp_ms if base_ms is None else base_ms
                _check_timestamp(record.timestamp_ms, base_ms)
                yield record._replace(offset=-1)
            if not changed:
                raise _NothingChangedError

        # A fetched batch keeps its last offset, so that a consumer continues after it even if records were dropped.
        last_offset = None if self._is_produced else header.last_offset
        try:
            encoded = encode_batch_like(
                header, records(), delete_horizon_ms=header.delete_horizon_ms, last_offset=last_offset
            )
        except _NothingChangedError:
            return None
        if not self._is_produced:
            return encoded if count else encode_empty_batch(header)
        if not count:
            raise KafkaError(ErrorCode.INVALID_RECORD, "The batch would have no record left.")
        if count != header.records_count and header.producer_id > NO_PRODUCER_ID:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A batch with sequence numbers must keep its number of records.")
        return encoded


def clear_records(partition: Any) -> None:
    """Remove the records of a fetched partition, and close the file that contains them."""
    # Empty bytes, because the field of a ShareFetch cannot be None.
    records, partition.records = partition.records, b""
    if records is not None and not isinstance(records, _BUFFERS):
        records.close()


def into_memory(partition: Any) -> None:
    """Read the records of a partition into memory if they are a region of a file, and close the file."""
    records = partition.records
    if records is not None and not isinstance(records, _BUFFERS):
        try:
            partition.records = records.read(records.position, records.size_bytes)
        finally:
            records.close()


def _check_timestamp(timestamp_ms: int, base_ms: int) -> None:
    # The sum of the batch's timestamp and a record's delta may exceed 64 bits. A new delta may exceed them too.
    for number in (timestamp_ms, timestamp_ms - base_ms):
        if not -_INT64_SPAN <= number < _INT64_SPAN:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"A timestamp of {timestamp_ms} does not fit in 64 bits.")


def _is_produced(partition: Any) -> bool:
    from klamm.wire.messages.produce import PartitionProduceData

    return isinstance(partition, PartitionProduceData)
