"""Compression of sealed segments, by cramjam."""

from __future__ import annotations

from typing import Any, Final

_SUFFIXES: Final = (".zst", ".gz")
_ZSTD_LEVEL: Final = 1
_GZIP_LEVEL: Final = 6


def is_compressed(suffix: str) -> bool:
    """Whether files with that last suffix are compressed."""
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
        """The next piece."""
        self._compressor.compress(data)

    def finish(self) -> bytes:
        """All of it, compressed. Nothing can be added after it."""
        return bytes(self._compressor.finish())


def decompress(data: bytes, suffix: str) -> bytes:
    """The lines of a sealed segment, by the last suffix of its file. Raises ValueError if the data are damaged."""
    if not is_compressed(suffix):
        return data
    import cramjam

    try:
        return bytes(cramjam.zstd.decompress(data) if suffix == ".zst" else cramjam.gzip.decompress(data))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
