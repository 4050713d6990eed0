"""`Scratch`: memory in which a thread decompresses small batches, with faster libraries if they are installed.

The extra `fast` installs `isal` for gzip and `zstandard` for zstd. Each is imported at the first batch with its codec.
Producers mostly send snappy and lz4 as a frame of one block. Such a frame needs less work than a general one.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeAlias

from klamm.wire.primitives import ReadBuffer

SCRATCH_BYTES: Final = 128 * 1024
_GZIP_WINDOW_BITS: Final = 31
_MAX_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
_ZSTD_BLOCK_HEADER_BYTES: Final = 3
_ZSTD_CHECKSUM_BYTES: Final = 4
_ZSTD_ONE_BYTE_REPEATED: Final = 1
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# The header of lz4 frames: magic, version 1 with independent blocks, blocks of up to 64 KiB, checksum of the two bytes.
LZ4_FRAME_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
LZ4_END_MARK: Final = b"\x00\x00\x00\x00"
LZ4_BLOCK_BYTES: Final = 64 * 1024
_xerial_head: Final = Struct(f">{len(XERIAL_HEADER)}si")
_lz4_head: Final = Struct(f"<{len(LZ4_FRAME_HEADER)}sI")

_Unpack: TypeAlias = Callable[[ReadBuffer], bytes | None]


class Scratch:
    """Decompresses batches into `space`, which has a fixed size. Only one thread at a time may use it."""

    __slots__ = ("_unpacks", "space")

    def __init__(self, size_bytes: int = SCRATCH_BYTES) -> None:
        self.space = bytearray(size_bytes)
        self._unpacks: dict[str, _Unpack] = {}

    def unpack(self, codec: str, data: ReadBuffer) -> bytes | None:
        """Return the decompressed data, or None if the caller must use the general method.

        None if there is no faster method for the codec, or if the data are not one valid frame that fits. Only the
        general method raises errors.
        """
        unpack = self._unpacks.get(codec)
        if unpack is None:
            load = _LOADERS.get(codec)
            unpack = self._unpacks[codec] = (load(self.space) if load else None) or _unavailable
        return unpack(data)


def _unavailable(_data: ReadBuffer) -> None:
    return None


def _load_gzip(space: bytearray) -> _Unpack | None:
    max_bytes = len(space)
    try:
        from isal.isal_zlib import IsalError, decompressobj
    except ImportError:
        return None

    def unpack(data: ReadBuffer) -> bytes | None:
        member = decompressobj(_GZIP_WINDOW_BITS)
        try:
            unpacked: bytes = member.decompress(data, max_bytes)
        except IsalError:
            return None
        return unpacked if member.eof and not member.unused_data else None

    return unpack


def _load_zstd(space: bytearray) -> _Unpack | None:
    max_bytes = len(space)
    try:
        from zstandard import (
            ZstdDecompressor,
            ZstdError,
            frame_content_size,
            frame_header_size,
            get_frame_parameters,
        )
    except ImportError:
        return None
    # The context keeps the memory of its largest window so far, so the window is limited.
    decompress = ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES).decompress

    def unpack(data: ReadBuffer) -> bytes | None:
        try:
            # The library allocates as much memory as a frame declares, so larger sizes are refused here.
            if frame_content_size(data) > max_bytes:
                return None
            end = _end_of_zstd_blocks(data, frame_header_size(data))
            if get_frame_parameters(data).has_checksum:
                end += _ZSTD_CHECKSUM_BYTES
            if end != len(data):
                return None
            unpacked: bytes = decompress(data, max_output_size=max_bytes)
        except (ZstdError, IndexError):
            return None
        return unpacked

    return unpack


def _end_of_zstd_blocks(data: ReadBuffer, position: int) -> int:
    """Return the end of a frame's last block (RFC 8878, 3.1.1.2). The library does not report it. Raises IndexError."""
    while True:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_repeated = header >> 1 & 3 == _ZSTD_ONE_BYTE_REPEATED
        position += _ZSTD_BLOCK_HEADER_BYTES + (1 if is_repeated else header >> 3)
        if header & 1:
            return position


def _load_snappy(space: bytearray) -> _Unpack:
    from cramjam import DecompressionError, snappy

    decompress_raw_into = snappy.decompress_raw_into
    view = memoryview(space)

    def unpack(data: ReadBuffer) -> bytes | None:
        try:
            header, length = _xerial_head.unpack_from(data)
            if header == XERIAL_HEADER and _xerial_head.size + length == len(data):
                data = data[_xerial_head.size :]
            elif header.startswith(XERIAL_MAGIC):
                return None
            return bytes(view[: decompress_raw_into(data, space)])
        except (DecompressionError, struct_error):
            return None

    return unpack


def _load_lz4(space: bytearray) -> _Unpack:
    from cramjam import DecompressionError, lz4

    decompress_block_into = lz4.decompress_block_into
    view = memoryview(space)

    def unpack(data: ReadBuffer) -> bytes | None:
        try:
            header, length = _lz4_head.unpack_from(data)
            end = _lz4_head.size + length
            if header != LZ4_FRAME_HEADER or data[end:] != LZ4_END_MARK:
                return None
            # `output_len` does not limit the output, so its size is checked afterwards.
            size_bytes = decompress_block_into(data[_lz4_head.size : end], space, output_len=LZ4_BLOCK_BYTES)
            return bytes(view[:size_bytes]) if size_bytes <= LZ4_BLOCK_BYTES else None
        except (DecompressionError, struct_error):
            return None

    return unpack


_LOADERS: Final[dict[str, Callable[[bytearray], _Unpack | None]]] = {
    "gzip": _load_gzip,
    "snappy": _load_snappy,
    "lz4": _load_lz4,
    "zstd": _load_zstd,
}
