"""Checks that consumers can read the records within a produced batch.

A batch with a correct CRC may still be wrong about the number of its records, their lengths, or its codec. As Kafka's
`LogValidator` does, the framing of all records is checked: lengths, offset deltas, the count, and the uncompressed size
of compressed batches. Keys and values are not checked.

A walk over the records in Python takes most of a microsecond per record. Producers often send records of one shape. So
a batch that was found sound and whose records are regular leaves a plan: the bytes that every regular batch of its size
and count has at certain places. A few slices, each of which takes one byte of every record, then replace the walk.
"""

from __future__ import annotations

import contextlib
import threading
from itertools import chain
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES, Codec, decompress
from klamm.wire.primitives import ReadBuffer
from klamm.wire.records import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatchHeader
from klamm.wire.scratch import Scratch

INLINE_UNPACKED_BYTES: Final = 256 * 1024
"""Largest uncompressed size of a batch that a processor's thread checks itself."""

ANY_RATIO_BYTES: Final = 32 * 1024 * 1024
"""Up to this size, a batch may unpack to any multiple of its own."""

_LARGE_BYTES: Final = 16 * 1024 * 1024
# One large batch is decompressed at a time, so that memory stays bounded.
_one_large_at_a_time: Final = threading.Lock()


class _OfThisThread(threading.local):
    def __init__(self) -> None:
        self.scratch = Scratch()


_of_this_thread: Final = _OfThisThread()
_KEY_AND_VALUE: Final = (0, 1)
_SMALLEST_RECORD_BYTES: Final = 7
_NULL: Final = 1
"""The length of a key or value that is null: -1, in zigzag."""
_LONGEST_VARINT_BYTES: Final = 5
_LONGEST_VARLONG_BYTES: Final = 10
# Zigzag of 0 to 63 takes one byte, that of 64 to 8191 two.
_DELTAS_OF_ONE_BYTE: Final = 64
_DELTAS_OF_TWO_BYTES: Final = 8192
_LOW_BYTES: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(_DELTAS_OF_ONE_BYTE, _DELTAS_OF_TWO_BYTES))
_HIGH_BYTES: Final = bytes(2 * delta >> 7 for delta in range(_DELTAS_OF_ONE_BYTE, _DELTAS_OF_TWO_BYTES))
_MAX_PLANS: Final = 1024
_FIRST_OF_TWO_BYTES: Final = 128
# How many headers the record before has, which is 0; all up to the value, as one number: length, attributes, timestamp,
# delta, null key, length of the value. The first record has none before it.
_unpack_first: Final = Struct("<Q").unpack_from
_unpack_short: Final = Struct("<BQ").unpack_from
# Zigzag of a delta, at its place in that number.
_DELTA_SHIFT: Final = 33
_SHORT_DELTAS: Final = tuple(delta << _DELTA_SHIFT for delta in range(_DELTAS_OF_ONE_BYTE))
# The timestamp there, without the bit that says that it goes on.
_TIMESTAMP: Final = 0x7F << 24
_MAX_SIZES: Final = 32 * 1024
# The same in four numbers, as a delta has two bytes, and many timestamps occur in a batch of so many records: up to the
# attributes; timestamp; the delta's low byte; its high byte and the rest.
_unpack_long: Final = Struct("<IBBI").unpack_from
_LONG_DELTAS: Final = tuple((low, high | _NULL << 8) for low, high in zip(_LOW_BYTES, _HIGH_BYTES, strict=True))
# Above all that is read, so that no difference is one that is expected.
_NOT_PLAIN: Final = (1 << 32, 0)


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
        unpacked = decompress(codec, body, min(max_bytes, allowed_bytes, _LARGE_BYTES), _of_this_thread.scratch)
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
        raise _invalid(f"{header.records_count} records do not fit in {body_bytes} bytes.")


def _check_body(body: ReadBuffer, count: int) -> None:
    if count * _SMALLEST_RECORD_BYTES > len(body):
        raise _invalid(f"{count} records do not fit in {len(body)} bytes.")
    plan = _plans.get((len(body), count))
    if plan is not None and plan.fits(memoryview(body)):
        return
    try:
        # Bytes are not copied.
        end = _walk(bytes(body), count)
    except IndexError:
        raise _invalid("The records are cut short.") from None
    if end != len(body):
        raise _invalid(f"{len(body) - end} bytes follow the last record.")
    # Of records of one size, those from the 65th on may have up to three bytes more.
    more_bytes = len(body) - count * _size_bytes(body, 0)
    if more_bytes == 0 or 0 < more_bytes <= 3 * (count - _DELTAS_OF_ONE_BYTE):
        # An irregular batch may have any bytes where a regular one has its 65th record: it is sound nevertheless.
        with contextlib.suppress(IndexError, KafkaError):
            _learn(memoryview(body), count)


def _walk(body: bytes, count: int) -> int:
    """Where the last of so many records ends. Raises KafkaError, IndexError."""
    first_index, position = _walk_plain(body, count)
    # `_varint` is spelled out where a number takes two bytes: a call costs as much as the rest of a record.
    for index in range(first_index, count):
        raw = body[position]
        position += 1
        if raw > 0x7F:
            high = body[position]
            if high < 0x80:
                raw += (high - 1) << 7
                position += 1
            else:
                raw, position = _varint(body, position - 1)
        stop = position + (raw >> 1)
        # Behind the length, the attributes, which mean nothing, and the timestamp, which may be any.
        position += 1
        first = position
        while body[position] > 0x7F:
            position += 1
        position += 1
        if raw & 1 or position - first > _LONGEST_VARLONG_BYTES:
            raise _invalid(f"Record {index} has a bad length or timestamp.")
        delta = body[position]
        position += 1
        if delta > 0x7F:
            delta, position = _varint(body, position - 1)
        if delta != 2 * index:
            raise _invalid(f"Record {index} has another offset.")
        length = body[position]
        position += 1
        if length != _NULL:
            position = _end_of_content(body, position, length, index)
        length = body[position]
        position += 1
        if length > 0x7F and (high := body[position]) < 0x80 and not length & 1:
            position += 1 + ((length + ((high - 1) << 7)) >> 1)
        elif length != _NULL:
            position = _end_of_content(body, position, length, index)
        if body[position]:
            position = _check_headers(body, position, index)
        else:
            position += 1
        if position != stop:
            raise _invalid(f"Record {index} is not as long as it says.")
    return position


def _walk_plain(body: bytes, count: int) -> tuple[int, int]:
    """How many records from the first one on are plain, and where they end; (0, 0) if the last of these is not.

    A plain record has neither key, headers nor attributes, a length of two bytes and a timestamp of one. So all numbers
    before its value lie at fixed places. The number of headers, its last byte, is read with the next record.
    Raises IndexError.
    """
    if not count:
        return 0, 0
    sizes = _short_sizes
    try:
        (head,) = _unpack_first(body)
        last = sizes[head] - 1
    except (struct_error, _NotPlainError):
        return 0, 0
    delta = 0
    try:
        for delta in _SHORT_DELTAS[1:count]:
            headers, head = _unpack_short(body, last)
            if headers:
                return 0, 0
            last += sizes[head - delta]
    except (struct_error, _NotPlainError):
        done = delta >> _DELTA_SHIFT
    else:
        done = min(count, _DELTAS_OF_ONE_BYTE)
        if count > done:
            done, last = _walk_long(body, count, last)
    return (0, 0) if body[last] else (done, last + 1)


def _walk_long(body: bytes, count: int, last: int) -> tuple[int, int]:
    """Go on with the records whose deltas have two bytes; how many are plain in all, and the last byte of these."""
    done = _DELTAS_OF_ONE_BYTE
    try:
        for low, expected in _LONG_DELTAS[: count - done]:
            head, timestamp, delta, content = _unpack_long(body, last)
            known, size_bytes = _long_heads[head]
            if delta != low or content - known != expected or timestamp > 0x7F:
                break
            last += size_bytes
            done += 1
    except struct_error:
        return done, last
    return done, last


class _NotPlainError(Exception):
    """A record is not plain; it may be sound nevertheless."""


class _Sizes(dict[int, int]):
    """The first eight bytes of a plain record, as a number in which the delta is 0 → the size of the record."""

    def __missing__(self, head: int) -> int:
        if head & _TIMESTAMP:
            # Any is right. So there may be too many to remember them all.
            size_bytes = self[head & ~_TIMESTAMP]
            if len(self) < _MAX_SIZES:
                self[head] = size_bytes
            return size_bytes
        length, key, value = head & 0xFFFF, head >> 40 & 0xFF, head >> 48
        if head >> 16 & 0xFFFFFF or key != _NULL or _content_of(length, 1) != value:
            raise _NotPlainError
        size_bytes = self[head] = 2 + (_number(length) >> 1)
        return size_bytes


class _Heads(dict[int, tuple[int, int]]):
    """The first four bytes of a plain record and the one before → the length of its value, as it stands, and its size.

    Its delta has two bytes. The length of the value is two bytes, above the two for the end of the delta and the key.
    """

    def __missing__(self, head: int) -> tuple[int, int]:
        length = head >> 8 & 0xFFFF
        value = _content_of(length, 2)
        if head & 0xFF0000FF or not value:
            return _NOT_PLAIN
        known = self[head] = (value << 16, 2 + (_number(length) >> 1))
        return known


def _content_of(length: int, delta_bytes: int) -> int:
    """The two bytes that give the value's length in a plain record whose own length is these two; 0 if it is not."""
    # Attributes, timestamp, delta, null key, length of the value, value, number of headers.
    value = _number(length) - 2 * (6 + delta_bytes)
    if length & 0x8080 != 0x80 or value & 1 or value < _FIRST_OF_TWO_BYTES:
        return 0
    return value & 0x7F | 0x80 | (value >> 7) << 8


def _number(two_bytes: int) -> int:
    """A number of two bytes as it is before zigzag."""
    return two_bytes & 0x7F | (two_bytes >> 8) << 7


_short_sizes: Final = _Sizes()
_long_heads: Final = _Heads()


def _end_of_content(body: bytes, position: int, length: int, index: int) -> int:
    """Where a key or value ends; `length` is the first byte of its length, behind which the position is."""
    if length > 0x7F:
        length, position = _varint(body, position - 1)
    if length & 1:
        if length != _NULL:
            raise _invalid(f"Record {index} has a key or value of a negative length.")
        return position
    return position + (length >> 1)


def _check_headers(body: bytes, position: int, index: int) -> int:
    count, position = _varint(body, position)
    if count & 1 or count >> 1 > len(body) - position:
        raise _invalid(f"Record {index} has a bad number of headers.")
    for _ in range(count >> 1):
        name, position = _varint(body, position)
        if name & 1:
            raise _invalid(f"Record {index} has a header without a name.")
        position += name >> 1
        value, position = _varint(body, position)
        if not value & 1:
            position += value >> 1
        elif value != 1:
            raise _invalid(f"Record {index} has a header with a value of a negative length.")
    return position


def _varint(body: ReadBuffer, position: int) -> tuple[int, int]:
    """A number as it is before zigzag, and where it ends. Raises KafkaError, IndexError."""
    raw = body[position]
    if raw < 0x80:
        return raw, position + 1
    raw &= 0x7F
    shift = 7
    for end in range(position + 2, position + 1 + _LONGEST_VARINT_BYTES):
        byte = body[end - 1]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, end
        shift += 7
    raise _invalid(f"A number at byte {position} of the records is too long.")


class _Plan(NamedTuple):
    """What is the same in all regular batches of one size and count; a slice takes one byte of each record.

    `ends` are the last bytes of timestamps, and `beginnings` those before them.
    """

    columns: tuple[tuple[slice, bytes], ...]
    ends: tuple[slice, ...]
    beginnings: tuple[slice, ...]

    def fits(self, body: memoryview) -> bool:
        for places, expected in self.columns:
            if body[places].tobytes() != expected:
                return False
        for places in self.ends:
            if not body[places].tobytes().isascii():
                return False
        return all(min(body[places].tobytes()) > 0x7F for places in self.beginnings)


_plans: dict[tuple[int, int], _Plan] = {}


def _learn(body: memoryview, count: int) -> None:
    """Remember the plan of a sound batch, if it is regular: records of one size as long as their deltas have one."""
    first = min(count, _DELTAS_OF_ONE_BYTE)
    later = min(count, _DELTAS_OF_TWO_BYTES) - first
    size_bytes = _size_bytes(body, 0)
    later_start = first * size_bytes
    if later_start > len(body) or (later and later_start == len(body)):
        return
    later_bytes = _size_bytes(body, later_start) if later else 0
    if count > _DELTAS_OF_TWO_BYTES or later_start + later * later_bytes != len(body):
        return
    runs = [_run(body, 0, size_bytes, first, (bytes(range(0, 2 * first, 2)),))]
    if later:
        runs.append(_run(body, later_start, later_bytes, later, (_LOW_BYTES[:later], _HIGH_BYTES[:later])))
    plan = _Plan(*(tuple(chain.from_iterable(parts)) for parts in zip(*runs, strict=True)))
    if all(run.columns for run in runs) and plan.fits(body):
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[len(body), count] = plan


def _size_bytes(body: ReadBuffer, start: int) -> int:
    raw, end = _varint(body, start)
    return end - start + (raw >> 1)


def _run(body: memoryview, start: int, size_bytes: int, count: int, deltas: tuple[bytes, ...]) -> _Plan:
    """The plan of so many records of one size; without columns if they have headers, or other deltas."""
    record = bytes(body[start : start + size_bytes])

    def column(at: int) -> slice:
        return slice(start + at, start + at + (count - 1) * size_bytes + 1, size_bytes)

    _raw, position = _varint(record, 0)
    fixed = [*range(position)]
    timestamp = position + 1
    while record[timestamp] > 0x7F:
        timestamp += 1
    _delta, end = _varint(record, timestamp + 1)
    delta_places = range(timestamp + 1, end)
    for _ in _KEY_AND_VALUE:
        length, content = _varint(record, end)
        fixed.extend(range(end, content))
        end = content + (0 if length & 1 else length >> 1)
    fixed.append(end)
    if record[end] or len(delta_places) != len(deltas):
        return _Plan((), (), ())
    columns = [(column(at), record[at : at + 1] * count) for at in fixed]
    columns.extend((column(at), values) for at, values in zip(delta_places, deltas, strict=True))
    beginnings = tuple(column(at) for at in range(position + 1, timestamp))
    return _Plan(tuple(columns), (column(timestamp),), beginnings)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
