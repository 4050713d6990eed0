"""`Pipes`: pipes through which the kernel moves bytes from one socket to another."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from klamm.wire.chunks import Chunk

PIPE_BYTES: Final = 512 * 1024
"""The capacity of a pipe. A client that stops reading in the middle of a response occupies one pipe."""
MAX_IDLE: Final = 4
"""The number of empty pipes that are kept for the next responses."""
_COPIED_BYTES: Final = 64 * 1024
_SET_SIZE: Final = 1031


class Pipe:
    """Both ends of a pipe, which are closed together. Raises OSError if the system cannot make another pipe."""

    __slots__ = ("reader", "writer")

    def __init__(self) -> None:
        # Some systems lack these functions; pipes are used only if `Platform.has_splice` is True.
        import fcntl

        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(self.writer, _SET_SIZE, PIPE_BYTES)

    def __del__(self) -> None:
        if hasattr(self, "writer"):
            os.close(self.reader)
            os.close(self.writer)


class PipedBytes:
    """A chunk of a response whose bytes wait in a pipe; `size_bytes` bytes are left.

    `Pipes.fill` makes it; the `NetworkSend` of the same processor reads and closes it.
    """

    __slots__ = ("_pipes", "pipe", "position", "size_bytes")

    def __init__(self, pipes: Pipes, pipe: Pipe, size_bytes: int) -> None:
        self._pipes = pipes
        self.pipe = pipe
        self.size_bytes = size_bytes
        self.position = 0

    def fileno(self) -> int:
        """Return the descriptor of the end from which bytes are read."""
        return self.pipe.reader

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return the next bytes. `position` is ignored, because a pipe has no positions."""
        return os.read(self.pipe.reader, size_bytes)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read the next bytes into a buffer, as `read` does."""
        return os.readv(self.pipe.reader, [buffer])

    def close(self) -> None:
        """Release the pipe, because its bytes have been sent or will not be sent."""
        if not self.size_bytes:
            self._pipes.give_back(self.pipe)


class Pipes:
    """The pipes of one processor. Its `PipelinedLifecycle` makes and uses them on the processor's thread."""

    def __init__(self, open_pipe: Callable[[], Pipe] = Pipe) -> None:
        self._open_pipe = open_pipe
        self._idle: list[Pipe] = []

    def fill(self, descriptor: int, count: int) -> Chunk:
        """Read up to `count` bytes from a socket into a pipe, or into memory if no pipe is available.

        Return no bytes at the end of the stream. Raises BlockingIOError if no bytes have arrived, and OSError.
        """
        if sys.platform != "linux":
            raise NotImplementedError
        pipe = self._take()
        if pipe is None:
            return os.read(descriptor, min(count, _COPIED_BYTES))
        try:
            moved = os.splice(descriptor, pipe.writer, min(count, PIPE_BYTES), flags=os.SPLICE_F_NONBLOCK)
        except OSError:
            self.give_back(pipe)
            raise
        if not moved:
            self.give_back(pipe)
            return b""
        return PipedBytes(self, pipe, moved)

    def _take(self) -> Pipe | None:
        if self._idle:
            return self._idle.pop()
        try:
            return self._open_pipe()
        except OSError:
            # No descriptor is free, or the system's limit for the memory of pipes is reached.
            return None

    def give_back(self, pipe: Pipe) -> None:
        """Keep an empty pipe for the next response, or close it if there are enough."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(pipe)
