"""Functions that read and write Kafka's primitive types, for the generated messages.

Readers take `(buffer, position)` and return `(value, next position)`; writers append to a bytearray. Every length is
checked against the remaining bytes before anything is allocated. Source: Kafka's `protocol.types.Type`, KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, TypeAlias, TypeVar

ReadBuffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")

ZERO_UUID: Final = bytes(16)
EMPTY: Final[Any] = object()
"""The default of list parameters of messages. It stands for a new empty list."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_unpack_int16: Final = _INT16.unpack_from
_unpack_int32: Final = _INT32.unpack_from
_pack_int16: Final = _INT16.pack
_pack_int32: Final = _INT32.pack
_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(128))
_MAX_STRING: Final = 32767


@cache
def fixed_width(formats: str) -> tuple[Callable[[ReadBuffer, int], tuple[Any, ...]], Callable[..., bytes]]:
    """Return functions that read and write adjacent values of fixed width, in big-endian order.

    `formats` has the letters of the module `struct`.
    """
    of_struct = Struct(f">{formats}")
    return of_struct.unpack_from, of_struct.pack


DECODE_ERRORS: Final = (struct_error, IndexError, UnicodeDecodeError)
ENCODE_ERRORS: Final = (struct_error, AttributeError, TypeError, UnicodeEncodeError)


class WireError(Exception):
    """Raised for bytes that are not a valid message, or for a message with a value that its version cannot carry."""


class TooManyElementsError(WireError):
    """Raised if a message has more elements than its reader allows; see `decode_limited`."""


_elements_left: Final[ContextVar[list[int]]] = ContextVar("elements_left", default=[1 << 62])  # noqa: B039
"""The number of elements that may still follow in the message that this thread reads.

It is limited only within `decode_limited`.
"""
UNCOUNTED_BYTES: Final = 1024
"""The size up to which the elements of a message are not counted, because each element takes at least a byte."""


def _count(elements: int) -> None:
    left = _elements_left.get()
    left[0] -= elements
    if left[0] < 0:
        raise TooManyElementsError("the message has too many elements")


def decode_limited(
    decode: Callable[[int, ReadBuffer, int], T], version: int, buffer: ReadBuffer, offset: int, max_elements: int
) -> T:
    """Return `decode(version, buffer, offset)`, and allow at most `max_elements` array elements and tagged fields.

    Elements of nested arrays count too. Raises WireError, and TooManyElementsError before it reads an array that
    exceeds the limit. In messages of up to `UNCOUNTED_BYTES` elements are not counted.
    """
    if len(buffer) <= UNCOUNTED_BYTES:
        return decode(version, buffer, offset)
    before = _elements_left.set([max_elements])
    try:
        return decode(version, buffer, offset)
    finally:
        _elements_left.reset(before)


class ChunkBuffer(bytearray):
    """An output buffer that keeps file regions and buffers of more than `COPY_UP_TO_BYTES` without copying them.

    `chunks` has them, and the bytes that were written before them.
    """

    __slots__ = ("chunks",)
    COPY_UP_TO_BYTES: Final = 8192

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[Any] = []

    def put(self, chunk: Any) -> None:
        """Append records: bytes or a file region."""
        if isinstance(chunk, (bytes, bytearray, memoryview)):
            if len(chunk) <= self.COPY_UP_TO_BYTES:
                self += chunk
                return
        elif chunk.size_bytes == 0:
            chunk.close()
            return
        if self:
            self.chunks.append(bytes(self))
            self.clear()
        self.chunks.append(chunk)

    def finish(self) -> list[Any]:
        """Return all chunks in order."""
        if self:
            self.chunks.append(bytes(self))
        return self.chunks


def join_chunks(chunks: list[Any]) -> bytes:
    """Return all chunks as bytes. File regions are read."""
    return b"".join(
        chunk if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.read(chunk.position, chunk.size_bytes)
        for chunk in chunks
    )


def _short(needed: int, buffer: ReadBuffer, position: int) -> WireError:
    return WireError(f"{needed} bytes declared at byte {position}, {len(buffer) - position} are left")


def read_unsigned_varint(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Read an UNSIGNED_VARINT of at most 32 bits: its value, and the position after it. Raises WireError."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    # The loop is unrolled, because the sizes of batches take two or three bytes.
    byte = buffer[position + 1]
    value += (byte << 7) - 0x80
    if byte < 0x80:
        return value, position + 2
    byte = buffer[position + 2]
    value += (byte << 14) - 0x4000
    if byte < 0x80:
        return value, position + 3
    byte = buffer[position + 3]
    value += (byte << 21) - 0x200000
    if byte < 0x80:
        return value, position + 4
    value += (buffer[position + 4] << 28) - 0x10000000
    if value > 0xFFFFFFFF:
        raise WireError(f"varint before byte {position + 5} is longer than 32 bits")
    return value, position + 5


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append an UNSIGNED_VARINT."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_string(buffer: ReadBuffer, position: int) -> tuple[str, int]:
    """Read a STRING: its value, and the position after it. Raises WireError."""
    (length,) = _unpack_int16(buffer, position)
    position += 2
    end = position + length
    if length < 0:
        raise WireError(f"null string at byte {position - 2} where it is not allowed")
    if end > len(buffer):
        raise _short(length, buffer, position)
    return str(buffer[position:end], "utf-8"), end


def read_nullable_string(buffer: ReadBuffer, position: int) -> tuple[str | None, int]:
    """Read a NULLABLE_STRING: its value, and the position after it. Raises WireError."""
    (length,) = _unpack_int16(buffer, position)
    if length < 0:
        return None, position + 2
    return read_string(buffer, position)


def read_compact_string(buffer: ReadBuffer, position: int) -> tuple[str, int]:
    """Read a COMPACT_STRING: its value, and the position after it. Raises WireError."""
    length = buffer[position]
    if length < 0x80:
        # `read_unsigned_varint`, inlined for the usual case.
        position += 1
    else:
        length, position = read_unsigned_varint(buffer, position)
    end = position + length - 1
    if not length:
        raise WireError(f"null string before byte {position} where it is not allowed")
    if end > len(buffer):
        raise _short(length - 1, buffer, position)
    if length - 1 > _MAX_STRING:
        raise WireError(f"string of {length - 1} bytes at byte {position} is longer than {_MAX_STRING}")
    return str(buffer[position:end], "utf-8"), end


def read_compact_nullable_string(buffer: ReadBuffer, position: int) -> tuple[str | None, int]:
    """Read a COMPACT_NULLABLE_STRING: its value, and the position after it. Raises WireError."""
    if buffer[position] == 0:
        return None, position + 1
    return read_compact_string(buffer, position)


def write_string(out: bytearray, value: str) -> None:
    """Append a STRING."""
    data = value.encode()
    out += _pack_int16(len(data))
    out += data


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a NULLABLE_STRING."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    """Append a COMPACT_STRING."""
    data = value.encode()
    length = len(data) + 1
    if length < 128:
        out += _ONE_BYTE[length]
    elif length > _MAX_STRING + 1:
        raise WireError(f"string of {length - 1} bytes is longer than {_MAX_STRING}")
    else:
        write_unsigned_varint(out, length)
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a COMPACT_NULLABLE_STRING."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def read_data(buffer: ReadBuffer, position: int) -> tuple[ReadBuffer | None, int]:
    """Read nullable bytes with a 4-byte length, as a slice of the buffer.

    The slice is not a copy if the buffer is a memoryview.
    """
    (length,) = _unpack_int32(buffer, position)
    position += 4
    if length < 0:
        return None, position
    end = position + length
    if end > len(buffer):
        raise _short(length, buffer, position)
    return buffer[position:end], end


def read_compact_data(buffer: ReadBuffer, position: int) -> tuple[ReadBuffer | None, int]:
    """Read nullable bytes with a varint length; otherwise like `read_data`."""
    length, position = read_unsigned_varint(buffer, position)
    if not length:
        return None, position
    end = position + length - 1
    if end > len(buffer):
        raise _short(length - 1, buffer, position)
    return buffer[position:end], end


def read_bytes(buffer: ReadBuffer, position: int) -> tuple[bytes, int]:
    """Read a BYTES: its value, and the position after it. Raises WireError."""
    data, end = read_data(buffer, position)
    if data is None:
        raise WireError(f"null bytes at byte {position} where it is not allowed")
    return bytes(data), end


def read_nullable_bytes(buffer: ReadBuffer, position: int) -> tuple[bytes | None, int]:
    """Read a NULLABLE_BYTES: its value, and the position after it. Raises WireError."""
    data, end = read_data(buffer, position)
    return (None if data is None else bytes(data)), end


def read_compact_bytes(buffer: ReadBuffer, position: int) -> tuple[bytes, int]:
    """Read a COMPACT_BYTES: its value, and the position after it. Raises WireError."""
    data, end = read_compact_data(buffer, position)
    if data is None:
        raise WireError(f"null bytes at byte {position} where it is not allowed")
    return bytes(data), end


def read_compact_nullable_bytes(buffer: ReadBuffer, position: int) -> tuple[bytes | None, int]:
    """Read a COMPACT_NULLABLE_BYTES: its value, and the position after it. Raises WireError."""
    data, end = read_compact_data(buffer, position)
    return (None if data is None else bytes(data)), end


def write_bytes(out: bytearray, value: ReadBuffer) -> None:
    """Append a BYTES."""
    out += _pack_int32(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: ReadBuffer | None) -> None:
    """Append a NULLABLE_BYTES."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: ReadBuffer) -> None:
    """Append a COMPACT_BYTES."""
    write_unsigned_varint(out, len(value) + 1)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: ReadBuffer | None) -> None:
    """Append a COMPACT_NULLABLE_BYTES."""
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def _size_of(records: Any) -> int:
    if isinstance(records, (bytes, bytearray, memoryview)):
        return len(records)
    size_bytes: int = records.size_bytes
    return size_bytes


def write_records(out: ChunkBuffer, value: Any) -> None:
    """Append a RECORDS."""
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += _pack_int32(_size_of(value))
        out.put(value)


def write_compact_records(out: ChunkBuffer, value: Any) -> None:
    """Append a COMPACT_RECORDS."""
    if value is None:
        out.append(0)
    else:
        write_unsigned_varint(out, _size_of(value) + 1)
        out.put(value)


def read_array_length(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Read the length of an ARRAY; -1 is null.

    Raises WireError for a length beyond the number of remaining bytes, because each element takes at least a byte.
    """
    (length,) = _unpack_int32(buffer, position)
    position += 4
    size_bytes = len(buffer)
    if length > size_bytes - position:
        raise _short(length, buffer, position)
    if size_bytes > UNCOUNTED_BYTES and length > 0:
        _count(length)
    return (length if length >= 0 else -1), position


def read_compact_array_length(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Read the length of a COMPACT_ARRAY, which is a varint; otherwise like `read_array_length`."""
    length, position = read_unsigned_varint(buffer, position)
    size_bytes = len(buffer)
    if length - 1 > size_bytes - position:
        raise _short(length - 1, buffer, position)
    if size_bytes > UNCOUNTED_BYTES and length > 1:
        _count(length - 1)
    return length - 1, position


def write_array_length(out: bytearray, length: int) -> None:
    """Append the length of an ARRAY."""
    out += _pack_int32(length)


def write_compact_array_length(out: bytearray, length: int) -> None:
    """Append the length of a COMPACT_ARRAY."""
    if length < 127:
        out += _ONE_BYTE[length + 1]
    else:
        write_unsigned_varint(out, length + 1)


def skip_tagged_fields(buffer: ReadBuffer, position: int) -> int:
    """Return the position after tagged fields that this version does not know (KIP-482)."""
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position = skip(buffer, position, size)
    return position


def read_tag_count(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Read the number of tagged fields that follow. Each takes at least two bytes."""
    count, position = read_unsigned_varint(buffer, position)
    size_bytes = len(buffer)
    if 2 * count > size_bytes - position:
        raise _short(2 * count, buffer, position)
    if size_bytes > UNCOUNTED_BYTES:
        _count(count)
    return count, position


def skip(buffer: ReadBuffer, position: int, size: int) -> int:
    """Return the position after `size` bytes. Raises WireError if there are fewer."""
    if position + size > len(buffer):
        raise _short(size, buffer, position)
    return position + size


def write_tagged(out: bytearray, fields: list[tuple[int, bytes | bytearray]]) -> None:
    """Append tagged fields, in the order of their tags."""
    write_unsigned_varint(out, len(fields))
    for tag, data in fields:
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(data))
        out += data


def tag_size_differs(tag: int, size: int) -> WireError:
    """Return the error of a tagged field whose size is not the declared one."""
    return WireError(f"tagged field {tag} does not have the {size} bytes that it declares")


def null_not_allowed(name: str) -> WireError:
    """Return the error of a field that is null although it must not be."""
    return WireError(f"{name} is null, which is not allowed")


def not_in_version(name: str, version: int) -> WireError:
    """Return the error of a field with a value that the version cannot carry."""
    return WireError(f"{name} is set, which version {version} cannot carry")
