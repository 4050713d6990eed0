"""The chunks of a response: buffers, and regions of files that are sent without being read into memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of any kind. Bytes of a decoded message may be a view of its frame."""

COPY_UP_TO_BYTES: Final = 32 * 1024
"""File regions up to this size are read into memory, because one write with the bytes around them is faster."""


class FileRegion(Protocol):
    """A region of an open file that a response carries, like a slice of Kafka's `FileRecords`.

    The region is `size_bytes` bytes of the file, from `position` on. The file stays readable until `close`, even if
    the file is renamed or deleted.
    """

    size_bytes: int
    position: int

    def fileno(self) -> int:
        """Return the file's descriptor, for sendfile."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes from `position` of the file on, or fewer at its end."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read the file from `position` on into the buffer; return the number of bytes."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


Chunk: TypeAlias = Buffer | FileRegion


def close_chunks(chunks: Iterable[Chunk]) -> None:
    """Close the file regions among these chunks, which will not be sent."""
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            chunk.close()


def total_bytes(chunks: Sequence[Chunk]) -> int:
    """Return the size of all chunks together."""
    # Not isinstance with the protocol, which examines all members each time.
    return sum(
        len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes for chunk in chunks
    )


def flatten_small(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks with small file regions read into memory.

    One system call for them and the bytes around them is faster than sendfile.
    """
    flat: list[Chunk] = []
    for chunk in chunks:
        if isinstance(chunk, (bytes, bytearray, memoryview)):
            flat.append(chunk)
        elif chunk.size_bytes <= COPY_UP_TO_BYTES:
            flat.append(chunk.read(chunk.position, chunk.size_bytes))
            chunk.close()
        else:
            flat.append(chunk)
    return flat
