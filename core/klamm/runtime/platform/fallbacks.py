"""The fallbacks of `Platform`: reads and writes that seek, buffers sent in turns, and locks of other kinds."""

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
"""C's `struct flock` of Linux: type, whence, start, length, process. A length of 0 is the whole file."""
_LOCKED: Final = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
_LOCKED_AT: Final = 1 << 30
"""Windows prevents others from reading locked bytes, so the locked position is one that no locked file reaches."""
_LOOK_EVERY_S: Final = 0.01

Lock = Callable[[int], None]
SendParts = Callable[[Sequence[Any], Sequence[Any], int], int]
"""The buffers, no ancillary data, the flags; how many bytes were sent."""


class SeekingFiles:
    """Reads and writes at positions with a seek before each, one thread at a time."""

    def __init__(self) -> None:
        # Protects the positions of all descriptors from a seek until its read or write.
        self._lock = threading.Lock()

    def pread(self, descriptor: int, size_bytes: int, position: int, /) -> bytes:
        """Read as `os.pread` does."""
        with self._lock:
            os.lseek(descriptor, position, os.SEEK_SET)
            return os.read(descriptor, size_bytes)

    def preadv(self, descriptor: int, buffers: Any, position: int, /) -> int:
        """Read as `os.preadv` does, into one buffer after another."""
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
    """Return what sends one buffer after another, for sockets without `sendmsg`."""

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
    """Return the functions that take a lock, and that wait for one; the kinds of lock depend on the system.



    The lock is that of an open file (Linux), which Kafka's brokers respect; else `flock` (BSD, macOS); else that of
    Windows. The generic platform uses `flock`: without any lock two brokers could write to one directory.
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
    """Return `lock` with one exception for a file that another process has locked, whatever the system raises."""

    def take(descriptor: int) -> None:
        try:
            lock(descriptor)
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
            raise BlockingIOError(error.errno, os.strerror(error.errno)) from error

    return take
