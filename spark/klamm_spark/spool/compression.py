"""Compression of sealed segments, by cramjam."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from typing import Any, Final

_SUFFIXES: Final = (".zst", ".gz")
_ZSTD_LEVEL: Final = 1
_GZIP_LEVEL: Final = 6
_PIECE_BYTES: Final = 256 * 1024
"""Stays in a processor's cache while it is worked on."""
MOST_BYTES: Final = 1 << 30
"""No segment has more lines: the setting `segment_bytes` is at most half of it."""
_KEPT_BYTES: Final = 128 * 1024**2
"""Each thread has that much for the next segment."""
_FULL: Final = "failed to write whole buffer"
"""The error text of cramjam if the data do not fit into the buffer."""


def is_compressed(suffix: str) -> bool:
    """Return True if files with that last suffix are compressed."""
    return suffix in _SUFFIXES


def compress(data: bytes, codec: str) -> bytes:
    """`codec` is a value of the setting `compression`: none, zstd or gzip."""
    if codec == "none":
        return data
    compressor = Compressor(codec)
    compressor.add(data)
    return compressor.finish()


class Compressor:
    """Compresses in pieces, as they come: `codec` is zstd or gzip."""

    def __init__(self, codec: str) -> None:
        import cramjam

        self._compressor: Any = (
            cramjam.zstd.Compressor(_ZSTD_LEVEL) if codec == "zstd" else cramjam.gzip.Compressor(_GZIP_LEVEL)
        )

    def add(self, data: bytes) -> None:
        """Add the next piece."""
        self._compressor.compress(data)

    def finish(self) -> bytes:
        """Return all bytes, compressed. Nothing can be added afterwards."""
        return bytes(self._compressor.finish())


def decompress(data: bytes, suffix: str, size_bytes: int = MOST_BYTES) -> bytes:
    """Return the lines of a sealed segment, by the last suffix of its file.

    Raises ValueError if the data are damaged, or have more than `size_bytes` or `MOST_BYTES` bytes.
    """
    return b"".join(LineReader().pieces(data, suffix, size_bytes))


class LineReader:
    """Reads the lines of sealed segments in pieces, in the memory of the segment before. For one thread.

    New memory for each segment would cost about as much as its decompression.
    """

    def __init__(self) -> None:
        self._buffer = mmap.mmap(-1, 1)

    def pieces(self, data: bytes, suffix: str, size_bytes: int = MOST_BYTES) -> Iterator[bytes]:
        """Whole lines, some at a time; the last piece may end within a line. Read them before the next call.

        Arguments, and ValueError, which comes before the first piece, are as of `decompress`.
        """
        if not is_compressed(suffix):
            return _pieces(io.BytesIO(data), len(data))
        import cramjam

        codec: Any = cramjam.zstd if suffix == ".zst" else cramjam.gzip
        most_bytes = max(1, min(size_bytes, MOST_BYTES))
        buffer = self._buffer
        if len(buffer) < most_bytes:
            # The system gives memory only for what is written.
            buffer = mmap.mmap(-1, most_bytes)
        if len(buffer) <= _KEPT_BYTES:
            self._buffer = buffer
        try:
            count = codec.decompress_into(data, memoryview(buffer)[:most_bytes])
        except cramjam.DecompressionError as error:
            if str(error) != _FULL:
                raise ValueError(str(error)) from error
            raise ValueError(f"it unpacks to more than {most_bytes:,} bytes") from error
        return _pieces(buffer, count)


def _pieces(content: Any, size_bytes: int) -> Iterator[bytes]:
    done, piece_bytes = 0, _PIECE_BYTES
    while done < size_bytes:
        content.seek(done)
        piece = content.read(min(piece_bytes, size_bytes - done))
        end = len(piece) if done + len(piece) == size_bytes else piece.rfind(b"\n") + 1
        if end:
            yield piece[:end]
            done, piece_bytes = done + end, _PIECE_BYTES
        else:
            # A line that is longer: its bytes are read about twice.
            piece_bytes *= 2
