"""Chunks of a response: buffers, and regions of files that never pass through memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes of any kind. Bytes from a frame may be a view of it."""

COPY_UP_TO_BYTES: Final = 32 * 1024
"""A file region up to this size is read into memory: one write with the bytes around it beats a sendfile of it."""


class FileRegion(Protocol):
    """A region of an open file that a response carries: Kafka's `FileRecords` slice.

    The file stays readable until `close`, even if it is renamed or deleted.
    """

    size_bytes: int
    position: int

    def fileno(self) -> int: ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Bytes at `position` of the file; fewer only at its end."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer from `position` of the file; return the number of bytes."""
        ...

    def close(self) -> None: ...


Chunk: TypeAlias = Buffer | FileRegion


def close_chunks(chunks: Iterable[Chunk]) -> None:
    """Close the file regions among chunks that will not be sent."""
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            chunk.close()


def total_bytes(chunks: Sequence[Chunk]) -> int:
    """The size of all chunks together."""
    # Not isinstance with the protocol: that looks at its members each time.
    return sum(
        len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes for chunk in chunks
    )


def flatten_small(chunks: list[Chunk]) -> list[Chunk]:
    """Read small file regions into memory: one system call together with the bytes around them is faster than
    sendfile.
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
