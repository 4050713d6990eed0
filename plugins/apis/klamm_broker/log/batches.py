"""Iteration over the batches of a segment's file, for recovery, compaction and look-ups. Any thread may call it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.wire.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    RecordBatchHeader,
    batch_checksum,
    decode_end_transaction_marker,
    unpack_header,
)
from klamm_broker.log.files import LogFile
from klamm_broker.log.producer_state import CompletedTransaction, ProducerStateManager

_HEADERS_READ_BYTES: Final = 8 * 1024
_WHOLE_READ_BYTES: Final = 1024 * 1024


class PlacedHeader(NamedTuple):
    """The header of a batch and the position where the batch starts in the file."""

    position: int
    header: RecordBatchHeader


class PlacedBatch(NamedTuple):
    """A whole batch and its position in the file."""

    position: int
    header: RecordBatchHeader
    data: memoryview


def read_headers(file: LogFile, start: int, end: int) -> Iterator[PlacedHeader]:
    """Yield the headers of the batches that start in a part of a file. The part must be known to be sound."""
    position = start
    chunk, chunk_start = b"", start
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            chunk, chunk_start = file.read(position, min(_HEADERS_READ_BYTES, end - position)), position
            if len(chunk) < HEADER_BYTES:
                return
        header = RecordBatchHeader._make(unpack_header(chunk, position - chunk_start))
        yield PlacedHeader(position, header)
        position += header.batch_length + LOG_OVERHEAD_BYTES


def read_batches(file: LogFile, start: int, end: int) -> Iterator[PlacedBatch]:
    """Yield the valid batches in a part of a file. Stop at the first batch that is truncated, has a wrong CRC, or has a
    lower offset than the batch before it.
    """
    position = start
    chunk, chunk_start = memoryview(b""), start
    next_offset = -1
    while position + HEADER_BYTES <= end:
        held = chunk_start + len(chunk) - position
        if held < HEADER_BYTES:
            chunk, chunk_start = memoryview(file.read(position, min(_WHOLE_READ_BYTES, end - position))), position
            held = len(chunk)
            if held < HEADER_BYTES:
                return
        header = RecordBatchHeader._make(unpack_header(chunk, position - chunk_start))
        size_bytes = header.size_bytes
        if header.magic != MAGIC or not HEADER_BYTES <= size_bytes <= end - position:
            return
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            return
        if held < size_bytes:
            wanted = max(size_bytes, min(_WHOLE_READ_BYTES, end - position))
            chunk, chunk_start = memoryview(file.read(position, wanted)), position
            if len(chunk) < size_bytes:
                return
        data = chunk[position - chunk_start : position - chunk_start + size_bytes]
        if batch_checksum(data) != header.crc:
            return
        yield PlacedBatch(position, header, data)
        next_offset = header.last_offset + 1
        position += size_bytes


def replay_batch(
    producers: ProducerStateManager, file: LogFile, position: int, header: RecordBatchHeader
) -> CompletedTransaction | None:
    """Update the producers' state with a batch of the log. Returns the transaction that the batch ends, or None."""
    if header.producer_id <= NO_PRODUCER_ID:
        return None
    if not header.is_control:
        producers.add_batch(header, header.base_offset, header.max_timestamp_ms)
        return None
    marker = decode_end_transaction_marker(file.read(position, header.size_bytes))
    if marker is None:
        return None
    return producers.add_marker(header, marker, header.base_offset, header.max_timestamp_ms)
