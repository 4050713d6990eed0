"""Compression of sealed segments."""

from __future__ import annotations

from typing import Final

_SUFFIXES: Final = (".zst", ".gz")


def is_compressed(suffix: str) -> bool:
    """Whether files with that last suffix are compressed."""
    return suffix in _SUFFIXES


def compress(data: bytes, codec: str) -> bytes:
    """`codec` is a value of the setting `compression`: none, zstd or gzip."""
    if codec == "none":
        return data
    import cramjam

    return bytes(cramjam.zstd.compress(data) if codec == "zstd" else cramjam.gzip.compress(data))


def decompress(data: bytes, suffix: str) -> bytes:
    """The lines of a sealed segment, by the last suffix of its file. Raises ValueError if the data are damaged."""
    if not is_compressed(suffix):
        return data
    import cramjam

    try:
        return bytes(cramjam.zstd.decompress(data) if suffix == ".zst" else cramjam.gzip.decompress(data))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
