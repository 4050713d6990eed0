"""`NetworkSend`: a response that is being sent, in buffers and file regions.

mypyc compiles this module: see "Compiled" in docs/design.md before a change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from klamm.api.transport import TransportLayer
from klamm.network.pipes import PipedBytes
from klamm.wire.chunks import Buffer, Chunk, FileRegion, close_chunks, total_bytes

# Without this limit, one sendfile to a fast peer would go on and on, and all other channels would wait.
_TURN_BYTES: Final = 256 * 1024
_GATHER: Final = 64
_JOIN_UP_TO_BYTES: Final = 4096


class NetworkSend:
    """The unsent rest of an answer on one channel. Call `write_to` until it returns True, and `close` in any case.

    The selector makes it, and calls it on the processor's thread.

    Regions of files are read into `scratch` and written from there; if `scratch` is None, `send_file` sends them.
    `scratch` is used only during a call, so several sends may share it.
    """

    __slots__ = ("_chunks", "_position", "_remaining", "_scratch", "size_bytes")

    def __init__(self, chunks: Sequence[Chunk], scratch: memoryview | None) -> None:
        self._chunks: deque[Chunk] = deque(chunks)
        self._position = 0
        self._remaining = -1
        self._scratch = scratch
        self.size_bytes = 0

    def write_to(self, transport: TransportLayer) -> bool:
        """Write as much as the socket accepts; return True if everything has been written.

        A call sends at most about 256 KiB of files, so that other channels do not wait long.
        """
        budget = self.size_bytes + _TURN_BYTES
        while self._chunks:
            head = self._chunks[0]
            if isinstance(head, (bytes, bytearray, memoryview)):
                sent = self._write_buffers(transport)
            elif isinstance(head, PipedBytes):
                sent = self._write_piped(head, transport)
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
        # For a single buffer there is a cheaper system call.
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
        # The socket has accepted only a part, so another try would block.
        return 1 if sent == wanted else 0

    def _write_piped(self, piped: PipedBytes, transport: TransportLayer) -> int:
        sent = transport.splice_from(piped.fileno(), piped.size_bytes)
        piped.size_bytes -= sent
        self.size_bytes += sent
        if piped.size_bytes:
            return 0
        self._chunks.popleft()
        piped.close()
        return 1

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """Send these chunks after the remaining ones."""
        self._chunks.extend(chunks)

    @property
    def unsent_bytes(self) -> int:
        """Return the number of bytes that are still to be sent, including those of files. Any thread may call this."""
        return total_bytes(tuple(self._chunks))

    @property
    def held_bytes(self) -> int:
        """Return the number of bytes in memory that are still to be sent. Any thread may call this."""
        return sum(len(chunk) for chunk in tuple(self._chunks) if isinstance(chunk, (bytes, bytearray, memoryview)))

    def close(self) -> None:
        """Close the files that have not been sent."""
        close_chunks(self._chunks)
        self._chunks.clear()
