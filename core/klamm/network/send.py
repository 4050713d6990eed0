"""`NetworkSend` and `FileSend`: one response on its way out, in buffers and file regions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from klamm.api.transport import Buffer, TransportLayer

# A peer that reads as fast as it is sent to would keep one sendfile going, at the cost of all other channels.
_TURN_BYTES: Final = 256 * 1024
_COPY_UP_TO_BYTES: Final = 32 * 1024
_GATHER: Final = 64
_JOIN_UP_TO_BYTES: Final = 4096


class FileRegion(Protocol):
    """A stretch of an open file that a response carries: Kafka's `FileRecords` slice.

    The file stays readable until `close`, whatever becomes of its name.
    """

    size_bytes: int
    position: int

    def fileno(self) -> int: ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Bytes at `position` of the file; fewer only at its end."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer from `position` of the file; how many bytes there were."""
        ...

    def close(self) -> None: ...


Chunk: TypeAlias = Buffer | FileRegion


class NetworkSend:
    """What is left to send on one channel. `write_to` until it returns True; `close` whatever happens.

    File regions are read into `scratch`, which is borrowed for a call, and written from there; without one they are
    sent by `send_file`.
    """

    __slots__ = ("_chunks", "_position", "_remaining", "_scratch", "size_bytes")

    def __init__(self, chunks: Sequence[Chunk], scratch: memoryview | None) -> None:
        self._chunks: deque[Chunk] = deque(chunks)
        self._position = 0
        self._remaining = -1
        self._scratch = scratch
        self.size_bytes = 0

    def write_to(self, transport: TransportLayer) -> bool:
        """Write what goes; True once all has gone. About 256 KiB of files a call, so that none holds the others up."""
        budget = self.size_bytes + _TURN_BYTES
        while self._chunks:
            head = self._chunks[0]
            if isinstance(head, (bytes, bytearray, memoryview)):
                sent = self._write_buffers(transport)
            else:
                sent = self._write_region(head, transport)
            if sent <= 0 or self.size_bytes >= budget:
                return not self._chunks
        return True

    def _write_buffers(self, transport: TransportLayer) -> int:
        buffers: list[Buffer] = []
        total = 0
        for chunk in self._chunks:
            if not isinstance(chunk, (bytes, bytearray, memoryview)) or len(buffers) == _GATHER:
                break
            buffers.append(chunk)
            total += len(chunk)
        # A system call for one buffer costs less than one for several.
        offered = buffers if len(buffers) == 1 or total > _JOIN_UP_TO_BYTES else (b"".join(buffers),)
        sent = transport.write(offered, len(buffers) < len(self._chunks))
        self.size_bytes += sent
        rest = sent
        while buffers and rest >= len(buffers[0]):
            rest -= len(buffers.pop(0))
            self._chunks.popleft()
        if rest:
            self._chunks[0] = memoryview(buffers[0])[rest:]
        return 1 if sent == total else 0

    def _write_region(self, region: FileRegion, transport: TransportLayer) -> int:
        if self._remaining < 0:
            self._position, self._remaining = region.position, region.size_bytes
        if self._scratch is None:
            wanted = min(self._remaining, _TURN_BYTES)
            sent = transport.send_file(region.fileno(), self._position, wanted)
        else:
            piece = self._scratch[: self._remaining]
            wanted = len(piece)
            count = region.read_into(self._position, piece)
            if count < len(piece):
                raise OSError(f"the file ended {len(piece) - count} bytes early")
            sent = transport.write([piece])
        self._position += sent
        self._remaining -= sent
        self.size_bytes += sent
        if self._remaining == 0:
            self._chunks.popleft()
            self._remaining = -1
            region.close()
            return 1
        # Less than was offered went: the next try would only be told to wait.
        return 1 if sent == wanted else 0

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """Send these after what is left."""
        self._chunks.extend(chunks)

    def close(self) -> None:
        """Let go of files that were not sent."""
        close_chunks(self._chunks)
        self._chunks.clear()


def close_chunks(chunks: Sequence[Chunk] | deque[Chunk]) -> None:
    """Let go of the file regions among chunks that will not be sent."""
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            chunk.close()


def total_bytes(chunks: Sequence[Chunk]) -> int:
    """How many bytes all chunks come to."""
    # Not isinstance with the protocol: that looks at its members each time.
    return sum(
        len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes for chunk in chunks
    )


def flatten_small(chunks: list[Chunk]) -> list[Chunk]:
    """Read small file regions into memory: one system call with the bytes around them beats sendfile there."""
    flat: list[Chunk] = []
    for chunk in chunks:
        if isinstance(chunk, (bytes, bytearray, memoryview)):
            flat.append(chunk)
        elif chunk.size_bytes <= _COPY_UP_TO_BYTES:
            flat.append(chunk.read(chunk.position, chunk.size_bytes))
            chunk.close()
        else:
            flat.append(chunk)
    return flat
