"""`check_records`: checks that consumers can read the records within a produced batch.

A batch with a correct CRC may still have a wrong number of records, wrong lengths, or a wrong codec. As in Kafka's
`LogValidator`, the framing of all records is checked: lengths, offset deltas, the count, and the uncompressed size of
compressed batches. Keys and values are not checked. Each append calls it, on the thread that serves the request.
"""

from __future__ import annotations

import threading
from typing import Final

from klamm import KafkaError
from klamm.wire.batch_limits import DEFAULT_LIMITS, BatchLimits, check_room
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES, Codec, decompress
from klamm.wire.primitives import ReadBuffer
from klamm.wire.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatchHeader
from klamm_broker.log.record_walk import invalid, varint, walk
from klamm_broker.log.thread_scratch import OF_THIS_THREAD

INLINE_UNPACKED_BYTES: Final = 256 * 1024
"""Largest uncompressed size in bytes of a batch that a processor's thread checks itself."""

_LARGE_BYTES: Final = 16 * 1024 * 1024
# Only one large batch is decompressed at a time, so that memory stays bounded.
_one_large_at_a_time: Final = threading.Lock()


class UnpacksToMoreError(Exception):
    """Raised if a batch cannot be checked within the allowed bytes. The batch may be sound or not."""


def check_records(
    batch: bytes | bytearray | memoryview,
    header: RecordBatchHeader,
    max_bytes: int = MAX_UNCOMPRESSED_BYTES,
    limits: BatchLimits = DEFAULT_LIMITS,
    max_record_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> None:
    """Check the records of one batch.

    The decompressed size may be at most `max_bytes` in this call, and must not exceed `limits`. As in Kafka,
    `max_record_bytes` is the limit of a record in a compressed batch, without the bytes of the record's length.

    Raises KafkaError: INVALID_RECORD for records that contradict the header or themselves, CORRUPT_MESSAGE for bytes
    that the codec cannot decompress, or that exceed the limits. Raises UnpacksToMoreError if the size exceeds
    `max_bytes`, and `max_bytes` is lower than the limits. Very large batches are decompressed one at a time.
    """
    codec = header.codec
    body = memoryview(batch)[HEADER_BYTES : header.batch_length + LOG_OVERHEAD_BYTES]
    if codec is Codec.NONE:
        if len(body) > max_bytes:
            raise UnpacksToMoreError
        _check_body(body, header.records_count)
        return
    allowed_bytes = limits.unpacked_bytes(len(body))
    try:
        unpacked = decompress(codec, body, min(max_bytes, allowed_bytes, _LARGE_BYTES), OF_THIS_THREAD.scratch)
    except KafkaError:
        # The library's error is the same for invalid and for too large data.
        if allowed_bytes <= min(max_bytes, _LARGE_BYTES):
            raise
        if max_bytes <= _LARGE_BYTES:
            raise UnpacksToMoreError from None
    else:
        _check_body(unpacked, header.records_count, max_record_bytes)
        return
    with _one_large_at_a_time:
        _check_body(decompress(codec, body, min(max_bytes, allowed_bytes)), header.records_count, max_record_bytes)


def _check_body(body: ReadBuffer, count: int, max_record_bytes: int = MAX_UNCOMPRESSED_BYTES) -> None:
    check_room(count, len(body))
    _check_framing(body, count)
    if len(body) > max_record_bytes:
        _check_sizes(bytes(body), max_record_bytes)


def _check_sizes(body: bytes, max_record_bytes: int) -> None:
    position = 0
    while position < len(body):
        raw, position = varint(body, position)
        if raw >> 1 > max_record_bytes:
            raise invalid(f"A record has {raw >> 1} bytes; at most {max_record_bytes} are allowed.")
        position += raw >> 1


def _check_framing(body: ReadBuffer, count: int) -> None:
    # For `bytes` this makes no copy.
    data = bytes(body)
    try:
        end = walk(data, count)
    except IndexError:
        raise invalid("The records are cut short.") from None
    if end != len(data):
        raise invalid(f"{len(data) - end} bytes follow the last record.")
