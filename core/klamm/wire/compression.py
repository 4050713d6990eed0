"""The codecs of record batches (KIP-110 for zstd). They use cramjam, which is imported at first use.

Small batches of gzip and zstd are decompressed by faster libraries, if they are installed: `klamm.wire.scratch`.

The Java client frames snappy as the xerial library does: a header, then blocks of at most 32 KiB with their lengths.
Other clients send snappy without a frame. klamm reads both forms, and writes the framed form. The Java client reads
only lz4 frames whose blocks do not depend on each other (`Lz4BlockInputStream`), so klamm writes such frames.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.primitives import ReadBuffer
from klamm.wire.scratch import (
    LZ4_BLOCK_BYTES,
    LZ4_END_MARK,
    LZ4_FRAME_HEADER,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    Scratch,
)

MAX_UNCOMPRESSED_BYTES: Final = 128 * 1024 * 1024

_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")
_LZ4_UNCOMPRESSED: Final = 0x80000000
_LZ4_BLOCK_LENGTH: Final = Struct("<I")


class Codec(IntEnum):
    """Kafka's `CompressionType`, by its id in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_NAMES: Final = tuple(codec.name.lower() for codec in Codec)
"""The names of the codecs, by id."""


def compress(codec: Codec, data: ReadBuffer, level: int | None = None) -> bytes:
    """Return the compressed data. `level` is a level of the codec; None is its default. lz4 has only one level."""
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam

    if codec is Codec.SNAPPY:
        return _compress_xerial(cramjam.snappy, data)
    if codec is Codec.LZ4:
        return _compress_lz4(cramjam.lz4, data)
    module = getattr(cramjam, codec.name.lower())
    return bytes(module.compress(data) if level is None else module.compress(data, level=level))


def decompress(
    codec: Codec, data: ReadBuffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES, scratch: Scratch | None = None
) -> ReadBuffer:
    """Return the decompressed data.

    `scratch` is memory that the caller's thread reuses if the data fit, because allocating new memory takes longer than
    decompressing most batches.

    Raises KafkaError(CORRUPT_MESSAGE) for bytes that are not of this codec, or for more than `max_bytes` of data, so
    that a small batch cannot use all memory.
    """
    if codec is Codec.NONE:
        return data
    import cramjam

    name = _NAMES[codec]
    try:
        if scratch is not None and 2 * len(data) <= len(scratch.space) <= max_bytes:
            unpacked = scratch.unpack(name, data)
            if unpacked is not None:
                return unpacked
        else:
            scratch = None
        if codec is Codec.SNAPPY:
            return _decompress_snappy(cramjam.snappy, data, max_bytes)
        return _decompress_bounded(name, data, max_bytes, scratch)
    except (cramjam.DecompressionError, struct_error, ValueError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The records are not {name}: {error}") from None


def _anonymous(size_bytes: int) -> mmap.mmap:
    # Windows has no flags, and its mappings are private anyway.
    private: int | None = getattr(mmap, "MAP_PRIVATE", None)
    return mmap.mmap(-1, size_bytes) if private is None else mmap.mmap(-1, size_bytes, flags=private)


def _decompress_bounded(name: str, data: ReadBuffer, max_bytes: int, scratch: Scratch | None) -> bytes:
    import cramjam

    module = getattr(cramjam, name)
    if scratch is not None:
        # The library raises the same error for invalid data and for data that are too large.
        try:
            return bytes(memoryview(scratch.space)[: module.decompress_into(data, scratch.space)])
        except cramjam.DecompressionError:
            pass
    # A page of an anonymous mapping uses no memory until something is written to it.
    with _anonymous(max_bytes) as space:
        size_bytes = module.decompress_into(data, space)
        return space[:size_bytes]


def _compress_xerial(snappy: Any, data: ReadBuffer) -> bytes:
    out = bytearray(XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(lz4: Any, data: ReadBuffer) -> bytes:
    out = bytearray(LZ4_FRAME_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        plain = view[start : start + LZ4_BLOCK_BYTES]
        block = bytes(lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += _LZ4_BLOCK_LENGTH.pack(len(block))
            out += block
        else:
            out += _LZ4_BLOCK_LENGTH.pack(len(plain) | _LZ4_UNCOMPRESSED)
            out += plain
    out += LZ4_END_MARK
    return bytes(out)


def _decompress_snappy(snappy: Any, data: ReadBuffer, max_bytes: int) -> bytes:
    blocks = [data] if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC else list(_xerial_blocks(memoryview(data)))
    size_bytes = sum(snappy.decompress_raw_len(block) for block in blocks)
    if size_bytes > max_bytes:
        raise ValueError(f"{size_bytes} bytes are more than {max_bytes}")
    return b"".join(bytes(snappy.decompress_raw(block)) for block in blocks)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(XERIAL_HEADER)
    while position < len(view):
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(view) - position:
            raise ValueError(f"a block of {length} bytes at byte {position} of {len(view)}")
        yield view[position : position + length]
        position += length
