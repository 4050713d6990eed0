"""Compression and decompression of sealed segments, by the library cramjam. The writer and all readers use it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any, Final

_SUFFIXES: Final = (".zst", ".gz")
_ZSTD_LEVEL: Final = 1
_GZIP_LEVEL: Final = 6
_PIECE_BYTES: Final = 256 * 1024
"""The size of a piece, which stays in the processor's cache while it is processed."""
MOST_BYTES: Final = 1 << 30
"""The maximum bytes of a segment's lines. The setting `segment_bytes` is at most half of it."""
_KEPT_BYTES: Final = 128 * 1024**2
"""The maximum memory that a reader keeps for the next segment."""
_FULL: Final = "failed to write whole buffer"
"""The error text of cramjam if the result does not fit into the buffer."""


def is_compressed(suffix: str) -> bool:
    """Return True if files with this last suffix are compressed."""
    return suffix in _SUFFIXES


def compress(data: bytes, codec: str) -> bytes:
    """Return compressed data. `codec` is a value of the setting `compression`: none, zstd or gzip."""
    if codec == "none":
        return data
    compressor = Compressor(codec)
    compressor.add(data)
    return compressor.finish()


class Compressor:
    """A compressor that gets its data in pieces. `codec` is zstd or gzip."""

    def __init__(self, codec: str) -> None:
        import cramjam

        self._compressor: Any = (
            cramjam.zstd.Compressor(_ZSTD_LEVEL) if codec == "zstd" else cramjam.gzip.Compressor(_GZIP_LEVEL)
        )

    def add(self, data: bytes) -> None:
        """Add the next piece."""
        self._compressor.compress(data)

    def finish(self) -> bytes:
        """Return all compressed bytes. Nothing can be added afterwards."""
        return bytes(self._compressor.finish())


def decompress(data: bytes, suffix: str, size_bytes: int = MOST_BYTES) -> bytes:
    """Return the lines of a sealed segment. `suffix` is the last suffix of its file.

    Raises ValueError if the data are damaged, or have more than `size_bytes` or `MOST_BYTES` bytes.
    """
    return b"".join(LineReader().pieces(data, suffix, size_bytes))


class LineReader:
    """A reader of the lines of sealed segments, in pieces. It uses the same memory for all segments, on one thread.

    New memory for each segment would cost about as much as its decompression.
    """

    def __init__(self) -> None:
        self._buffer = mmap.mmap(-1, 1)

    def pieces(self, data: bytes, suffix: str, size_bytes: int = MOST_BYTES) -> Iterator[bytes]:
        """Yield pieces of complete lines; the last one may end within a line. Read all of them before the next call.

        The arguments are as for `decompress`. It raises the same ValueError, before the first piece.
        """
        return _pieces(self.content(data, suffix, size_bytes))

    def content(self, data: bytes, suffix: str, size_bytes: int = MOST_BYTES) -> memoryview:
        """Return what `decompress` does, as it is in memory until the next call."""
        if not is_compressed(suffix):
            return memoryview(data)
        import cramjam

        codec: Any = cramjam.zstd if suffix == ".zst" else cramjam.gzip
        most_bytes = max(1, min(size_bytes, MOST_BYTES))
        buffer = self._buffer
        if len(buffer) < most_bytes:
            # This reserves memory. The system only provides the pages that are written.
            buffer = mmap.mmap(-1, most_bytes)
        if len(buffer) <= _KEPT_BYTES:
            self._buffer = buffer
        try:
            count = codec.decompress_into(data, memoryview(buffer)[:most_bytes])
        except cramjam.DecompressionError as error:
            if str(error) != _FULL:
                raise ValueError(str(error)) from error
            raise ValueError(f"it unpacks to more than {most_bytes:,} bytes") from error
        return memoryview(buffer)[:count]


def _pieces(content: memoryview) -> Iterator[bytes]:
    done, piece_bytes = 0, _PIECE_BYTES
    while done < len(content):
        piece = bytes(content[done : done + piece_bytes])
        end = len(piece) if done + len(piece) == len(content) else piece.rfind(b"\n") + 1
        if end:
            yield piece[:end]
            done, piece_bytes = done + end, _PIECE_BYTES
        else:
            # The line is longer than the piece: read it again in a larger one.
            piece_bytes *= 2
