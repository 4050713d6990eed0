"""Checks that consumers can read the records within a produced batch.

A batch with a correct CRC may still be wrong about the number of its records, their lengths, or its codec. As Kafka's
`LogValidator` does, the framing of all records is checked: lengths, offset deltas, the count, and the uncompressed size
of compressed batches. Keys and values are not checked.

A walk over the records takes an interpreter up to a microsecond per record. So it first tries what takes fewer steps: a
plan of the whole batch, then plain records. A compiled walk is quicker than these, but for the plan of a large batch.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES, Codec, decompress
from klamm.wire.primitives import ReadBuffer
from klamm.wire.records import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatchHeader
from klamm_broker.log.plain_records import walk_plain
from klamm_broker.log.record_plans import fits_plan, learn_plan
from klamm_broker.log.record_walk import IS_COMPILED, invalid, walk
from klamm_broker.log.thread_scratch import OF_THIS_THREAD

INLINE_UNPACKED_BYTES: Final = 256 * 1024
"""Largest uncompressed size of a batch that a processor's thread checks itself."""

ANY_RATIO_BYTES: Final = 32 * 1024 * 1024
"""Up to this size, a batch may unpack to any multiple of its own."""

_LARGE_BYTES: Final = 16 * 1024 * 1024
# One large batch is decompressed at a time, so that memory stays bounded.
_one_large_at_a_time: Final = threading.Lock()
_SMALLEST_RECORD_BYTES: Final = 7
# Up to here, a compiled walk takes less than a plan; above, the copy that it needs takes more.
_PLANS_ABOVE_BYTES: Final = 128 * 1024 if IS_COMPILED else 0


class UnpacksToMoreError(Exception):
    """A batch cannot be checked within the bytes that were allowed; it may be sound, or not."""


class BatchLimits(NamedTuple):
    """What one batch may have: records, bytes when unpacked, and these as a multiple of the packed ones.

    The multiple counts above `ANY_RATIO_BYTES`.
    """

    max_records: int = 500_000
    max_unpacked_bytes: int = MAX_UNCOMPRESSED_BYTES
    max_ratio: int = 20_000

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """What so many bytes may unpack to."""
        return min(self.max_unpacked_bytes, max(ANY_RATIO_BYTES, packed_bytes * self.max_ratio))


DEFAULT_LIMITS: Final = BatchLimits()


def check_records(
    batch: bytes | bytearray | memoryview,
    header: RecordBatchHeader,
    max_bytes: int = MAX_UNCOMPRESSED_BYTES,
    limits: BatchLimits = DEFAULT_LIMITS,
) -> None:
    """Check the records of one batch, which may unpack to so many bytes here, and to no more than the limits anywhere.

    Raises KafkaError: INVALID_RECORD for records that are not what the header or they themselves say, CORRUPT_MESSAGE
    for bytes that are not of the codec, or unpack to more than the limits. Raises UnpacksToMoreError if `max_bytes`
    is less than those and too little. Of batches that unpack to very much, one is unpacked at a time.
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
        # The library does not report whether the data are garbage or too large.
        if allowed_bytes <= min(max_bytes, _LARGE_BYTES):
            raise
        if max_bytes <= _LARGE_BYTES:
            raise UnpacksToMoreError from None
    else:
        _check_body(unpacked, header.records_count)
        return
    with _one_large_at_a_time:
        _check_body(decompress(codec, body, min(max_bytes, allowed_bytes)), header.records_count)


def check_count(header: RecordBatchHeader, limits: BatchLimits = DEFAULT_LIMITS) -> None:
    """Check that a batch can and may have as many records as its header says, without reading them.

    Raises KafkaError: MESSAGE_TOO_LARGE above the limit, at which producers split a batch; INVALID_RECORD.
    """
    if header.records_count > limits.max_records:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {header.records_count} records, the broker takes {limits.max_records} (record.max.count).",
        )
    is_packed = header.attributes & CODEC_MASK
    body_bytes = limits.max_unpacked_bytes if is_packed else header.size_bytes - HEADER_BYTES
    if header.records_count * _SMALLEST_RECORD_BYTES > body_bytes:
        raise invalid(f"{header.records_count} records do not fit in {body_bytes} bytes.")


def _check_body(body: ReadBuffer, count: int) -> None:
    if count * _SMALLEST_RECORD_BYTES > len(body):
        raise invalid(f"{count} records do not fit in {len(body)} bytes.")
    may_have_plan = len(body) > _PLANS_ABOVE_BYTES
    if may_have_plan and fits_plan(body, count):
        return
    # Bytes are not copied.
    data = bytes(body)
    try:
        end = _walk(data, count)
    except IndexError:
        raise invalid("The records are cut short.") from None
    if end != len(data):
        raise invalid(f"{len(data) - end} bytes follow the last record.")
    if may_have_plan:
        learn_plan(data, count)


def _walk_in_an_interpreter(body: bytes, count: int) -> int:
    """Where the last of so many records ends. Raises KafkaError, IndexError."""
    first, position = walk_plain(body, count)
    return walk(body, count, first, position)


_walk: Final = walk if IS_COMPILED else _walk_in_an_interpreter
