"""What a thread keeps to unpack small batches into: memory, and the contexts of faster libraries, if there are any.

The extra `fast` installs `isal` for gzip and `zstandard` for zstd. They are imported at the first batch in that codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from klamm.wire.primitives import ReadBuffer

SCRATCH_BYTES: Final = 128 * 1024
_GZIP_WINDOW_BITS: Final = 31
_MAX_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
_ZSTD_BLOCK_HEADER_BYTES: Final = 3
_ZSTD_CHECKSUM_BYTES: Final = 4
_ZSTD_ONE_BYTE_REPEATED: Final = 1

_Unpack: TypeAlias = Callable[[ReadBuffer], bytes | None]


class Scratch:
    """Unpacks batches of up to so many bytes. For one thread at a time."""

    __slots__ = ("_unpacks", "space")

    def __init__(self, size_bytes: int = SCRATCH_BYTES) -> None:
        self.space = bytearray(size_bytes)
        self._unpacks: dict[str, _Unpack] = {}

    def unpack(self, codec: str, data: ReadBuffer) -> bytes | None:
        """The data of the codec `gzip` or `zstd`, by a faster library.

        None where there is none, or for anything but one sound frame that fits: the caller then unpacks in the
        general way, which alone decides what is an error.
        """
        unpack = self._unpacks.get(codec)
        if unpack is None:
            load = _LOADERS.get(codec)
            unpack = self._unpacks[codec] = (load(len(self.space)) if load else None) or _unavailable
        return unpack(data)


def _unavailable(_data: ReadBuffer) -> None:
    return None


def _load_gzip(max_bytes: int) -> _Unpack | None:
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


def _load_zstd(max_bytes: int) -> _Unpack | None:
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
    # The context keeps memory for the largest window that it has met.
    decompress = ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES).decompress

    def unpack(data: ReadBuffer) -> bytes | None:
        try:
            # For a frame that names its size the library takes memory of that size.
            if frame_content_size(data) > max_bytes:
                return None
            end = _end_of_zstd_blocks(data, frame_header_size(data))
            if get_frame_parameters(data).has_checksum:
                end += _ZSTD_CHECKSUM_BYTES
            if end != len(data):
                return None
            return decompress(data, max_output_size=max_bytes)
        except (ZstdError, IndexError):
            return None

    return unpack


def _end_of_zstd_blocks(data: ReadBuffer, position: int) -> int:
    """Where the last block of a frame ends (RFC 8878, 3.1.1.2). The library does not report it. Raises IndexError."""
    while True:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_repeated = header >> 1 & 3 == _ZSTD_ONE_BYTE_REPEATED
        position += _ZSTD_BLOCK_HEADER_BYTES + (1 if is_repeated else header >> 3)
        if header & 1:
            return position


_LOADERS: Final[dict[str, Callable[[int], _Unpack | None]]] = {"gzip": _load_gzip, "zstd": _load_zstd}
