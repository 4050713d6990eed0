"""A quick walk over plain records, for an interpreter: few calls for each record.

What a plain record has before its value lies at fixed places, is read with one call, and is looked up as one number.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from klamm_broker.log.record_plans import DELTAS_OF_ONE_BYTE, HIGH_BYTES, LOW_BYTES
from klamm_broker.log.record_walk import NULL

_FIRST_OF_TWO_BYTES: Final = 128
# How many headers the record before has, which is 0; all up to the value, as one number: length, attributes, timestamp,
# delta, null key, length of the value. The first record has none before it.
_unpack_first: Final = Struct("<Q").unpack_from
_unpack_short: Final = Struct("<BQ").unpack_from
# Zigzag of a delta, at its place in that number.
_DELTA_SHIFT: Final = 33
_SHORT_DELTAS: Final = tuple(delta << _DELTA_SHIFT for delta in range(DELTAS_OF_ONE_BYTE))
# The timestamp there, without the bit that says that it goes on.
_TIMESTAMP: Final = 0x7F << 24
_MAX_SIZES: Final = 32 * 1024
# The same in four numbers, as a delta has two bytes, and many timestamps occur in a batch of so many records: up to the
# attributes; timestamp; the delta's low byte; its high byte and the rest.
_unpack_long: Final = Struct("<IBBI").unpack_from
_LONG_DELTAS: Final = tuple((low, high | NULL << 8) for low, high in zip(LOW_BYTES, HIGH_BYTES, strict=True))
# Above all that is read, so that no difference is one that is expected.
_NOT_PLAIN: Final = (1 << 32, 0)


def walk_plain(body: bytes, count: int) -> tuple[int, int]:
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
        done = min(count, DELTAS_OF_ONE_BYTE)
        if count > done:
            done, last = _walk_long(body, count, last)
    return (0, 0) if body[last] else (done, last + 1)


def _walk_long(body: bytes, count: int, last: int) -> tuple[int, int]:
    """Go on with the records whose deltas have two bytes; how many are plain in all, and the last byte of these."""
    done = DELTAS_OF_ONE_BYTE
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
        if head >> 16 & 0xFFFFFF or key != NULL or _content_of(length, 1) != value:
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
