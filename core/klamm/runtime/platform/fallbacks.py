"""The fallbacks of `Platform`: reads and writes after a seek, a replacement of `sendmsg`, and locks of files."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

_FLOCK: Final = Struct("@hhqqi0q")
"""The format of C's `struct flock` on Linux: type, whence, start, length, process. Length 0 means the whole file."""
_LOCKED: Final = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
_LOCKED_AT: Final = 1 << 30
"""The locked position. It is after the end of any file, because Windows lets no other process read locked bytes."""
_LOOK_EVERY_S: Final = 0.01

Lock = Callable[[int], None]
SendParts = Callable[[Sequence[Any], Sequence[Any], int], int]
"""Takes buffers, ancillary data (always empty) and flags, and returns the number of bytes sent, like `sendmsg`."""


class SeekingFiles:
    """Reads and writes at positions, for systems without `pread`. One thread at a time seeks and reads or writes."""

    def __init__(self) -> None:
        # Held from a seek to the end of its read or write, because the position belongs to the descriptor.
        self._lock = threading.Lock()

    def pread(self, descriptor: int, size_bytes: int, position: int, /) -> bytes:
        """Read as `os.pread` does."""
        with self._lock:
            os.lseek(descriptor, position, os.SEEK_SET)
            return os.read(descriptor, size_bytes)

    def preadv(self, descriptor: int, buffers: Any, position: int, /) -> int:
        """Read as `os.preadv` does, one buffer after the other."""
        done = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            content = self.pread(descriptor, len(view), position + done)
            view[: len(content)] = content
            done += len(content)
            if len(content) < len(view):
                break
        return done

    def pwrite(self, descriptor: int, content: Any, position: int, /) -> int:
        """Write as `os.pwrite` does."""
        with self._lock:
            os.lseek(descriptor, position, os.SEEK_SET)
            return os.write(descriptor, content)


def sender_in_turns(sock: socket.socket) -> SendParts:
    """Return a function that sends one buffer after the other, for sockets without `sendmsg`."""

    def send_parts(parts: Sequence[Any], _ancillary: Sequence[Any], flags: int, /) -> int:
        sent = 0
        for part in parts:
            try:
                count = sock.send(part, flags)
            except BlockingIOError:
                if not sent:
                    raise
                break
            sent += count
            if count < len(part):
                break
        return sent

    return send_parts


def locks(*, is_generic: bool) -> tuple[Lock, Lock]:
    """Return two functions that lock an open file.

    If it is locked, the first raises BlockingIOError and the second waits. On Linux they take the lock of an open file,
    which Kafka's brokers respect; on BSD and macOS `flock`; on Windows the lock of the C library. The generic platform
    uses `flock`, because without a lock two brokers could write to one directory.
    """
    try:
        import fcntl
    except ImportError:
        import msvcrt

        return _of_windows(msvcrt)

    def wait(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    if is_generic or not hasattr(fcntl, "F_OFD_SETLK"):
        return _raising_blocked(lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)), wait
    content = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return _raising_blocked(lambda descriptor: fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, content)), wait


def _of_windows(msvcrt: Any) -> tuple[Lock, Lock]:
    def lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_AT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    take = _raising_blocked(lock)

    def wait(descriptor: int) -> None:
        while True:
            try:
                return take(descriptor)
            except BlockingIOError:
                time.sleep(_LOOK_EVERY_S)

    return take, wait


def _raising_blocked(lock: Callable[[int], object]) -> Lock:
    """Return a function that calls `lock`, and raises BlockingIOError if another process has locked the file."""

    def take(descriptor: int) -> None:
        try:
            lock(descriptor)
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
            raise BlockingIOError(error.errno, os.strerror(error.errno)) from error

    return take
