"""`walk`: checks the framing of the records of a batch: lengths, offset deltas and the count. `check_records` calls it,
on any thread.

An interpreter needs up to a microsecond per record. mypyc translates this file, unchanged, to a C module that needs a
hundredth of that time. `KLAMM_COMPILE=1 pip install .` builds klamm with this module, if there is a C compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm import ErrorCode, KafkaError

if TYPE_CHECKING:
    # 64-bit integers, which mypyc translates to C integers.
    from mypy_extensions import i64

# The length of a null key or value: -1 in zigzag encoding.
_NULL: Final = 1
_LONGEST_VARINT_BYTES: Final = 5
_LONGEST_VARLONG_BYTES: Final = 10


def walk(body: bytes, count: i64) -> i64:
    """Return the position where the last of `count` records ends.

    Raises KafkaError(INVALID_RECORD); IndexError if the records are cut short.
    """
    # The code of `varint` is repeated here for short numbers, because a call costs as much as the rest of a record.
    position: i64 = 0
    for index in range(count):
        raw: i64 = body[position]
        position += 1
        if raw > 0x7F:
            high: i64 = body[position]
            if high < 0x80:
                raw += (high - 1) << 7
                position += 1
            else:
                raw, position = varint(body, position - 1)
        stop = position + (raw >> 1)
        # After the length come the attributes, which are unused, and the timestamp, which may have any value.
        position += 1
        timestamp = position
        while body[position] > 0x7F:
            position += 1
        position += 1
        if raw & 1 or position - timestamp > _LONGEST_VARLONG_BYTES:
            raise invalid(f"Record {index} has a bad length or timestamp.")
        delta: i64 = body[position]
        position += 1
        if delta > 0x7F:
            delta, position = varint(body, position - 1)
        if delta != 2 * index:
            raise invalid(f"Record {index} has an offset other than its position in the batch.")
        length: i64 = body[position]
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
            raise invalid(f"Record {index} does not have the length that it declares.")
    return position


def _end_of_content(body: bytes, position: i64, length: i64, index: i64) -> i64:
    """Return the end of a key or value; `length` is the first byte of its length, just before `position`."""
    if length > 0x7F:
        length, position = varint(body, position - 1)
    if length & 1:
        if length != _NULL:
            raise invalid(f"Record {index} has a key or value of a negative length.")
        return position
    return position + (length >> 1)


def _check_headers(body: bytes, position: i64, index: i64) -> i64:
    count, position = varint(body, position)
    if count & 1 or count >> 1 > len(body) - position:
        raise invalid(f"Record {index} has a bad number of headers.")
    for _ in range(count >> 1):
        name, position = varint(body, position)
        if name & 1:
            raise invalid(f"Record {index} has a header without a name.")
        position += name >> 1
        value, position = varint(body, position)
        if not value & 1:
            position += value >> 1
        elif value != 1:
            raise invalid(f"Record {index} has a header with a value of a negative length.")
    return position


def varint(body: bytes, position: i64) -> tuple[i64, i64]:
    """Return a number before zigzag decoding, and its end position. Raises KafkaError, IndexError."""
    raw: i64 = body[position]
    if raw < 0x80:
        return raw, position + 1
    raw &= 0x7F
    shift: i64 = 7
    for end in range(position + 2, position + 1 + _LONGEST_VARINT_BYTES):
        byte: i64 = body[end - 1]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, end
        shift += 7
    raise invalid(f"A number at byte {position} of the records is too long.")


def invalid(message: str) -> KafkaError:
    """Return the error for records that contradict their framing."""
    return KafkaError(ErrorCode.INVALID_RECORD, message)
