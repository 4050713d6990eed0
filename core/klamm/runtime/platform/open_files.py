"""Functions that open, rename and sync files. `find_platform` chooses those that the system needs."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_FLAGS: Final = getattr(os, "O_CLOEXEC", getattr(os, "O_NOINHERIT", 0)) | getattr(os, "O_BINARY", 0)
"""Flags: child processes do not inherit the descriptor, and line ends are not translated."""
_NOT_SUPPORTED: Final = frozenset({errno.ENOTSUP, errno.ENOTTY, errno.EINVAL})
_TRIES: Final = 50
_LOOK_EVERY_S: Final = 0.02

# Arguments of Windows' CreateFile: access to the content, allowed access of others, treatment of an existing file.
_READS: Final = 0x8000_0000
_WRITES: Final = 0x4000_0000
_SHARES_ALL: Final = 1 | 2 | 4
_CREATE_NEW: Final = 1
_CREATE_ALWAYS: Final = 2
_OPEN_EXISTING: Final = 3
_OPEN_ALWAYS: Final = 4
_TRUNCATE_EXISTING: Final = 5
_NORMAL: Final = 0x80


def open_alone(path: str | Path, flags: int, mode: int) -> int:
    """Open a file and return its descriptor, as `os.open` does."""
    return os.open(path, flags | _FLAGS, mode)


def open_shared(path: str | Path, flags: int, mode: int) -> int:
    """Open a file on Windows so that it can be renamed and deleted while it is open. Return its descriptor."""
    import _winapi
    import msvcrt

    # On Linux these modules do not exist or are empty.
    system: Any = _winapi
    descriptors: Any = msvcrt
    access = {os.O_RDONLY: _READS, os.O_WRONLY: _WRITES}.get(flags & (os.O_WRONLY | os.O_RDWR), _READS | _WRITES)
    # Windows has no modes: a file inherits its access rights from the directory.
    handle = system.CreateFile(os.fspath(path), access, _SHARES_ALL, 0, _disposition(flags), _NORMAL, 0)
    try:
        return int(descriptors.open_osfhandle(handle, flags & os.O_APPEND | _FLAGS))
    except BaseException:
        system.CloseHandle(handle)
        raise


def _disposition(flags: int) -> int:
    if flags & os.O_CREAT:
        if flags & os.O_EXCL:
            return _CREATE_NEW
        return _CREATE_ALWAYS if flags & os.O_TRUNC else _OPEN_ALWAYS
    return _TRUNCATE_EXISTING if flags & os.O_TRUNC else _OPEN_EXISTING


def replace_patiently(source: str | Path, target: str | Path) -> None:
    """Rename as `os.replace` does, with several tries: on Windows a reader or virus scanner may briefly prevent it."""
    tries_left = _TRIES
    while True:
        try:
            os.replace(source, target)
            break
        except PermissionError:
            tries_left -= 1
            if not tries_left:
                raise
            time.sleep(_LOOK_EVERY_S)


def find_sync() -> Callable[[int], None]:
    """Return the function that waits until the disk has a file.

    On macOS `fsync` is not enough, because it waits only until the disk's own cache has the file.
    """
    try:
        import fcntl
    except ImportError:
        return os.fsync
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        return os.fsync

    def sync(descriptor: int) -> None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            # Some file systems lack this call. After any other error, a later success would not prove anything.
            if error.errno not in _NOT_SUPPORTED:
                raise
            os.fsync(descriptor)

    return sync


def sync_by_syncfs(descriptor: int) -> None:
    """Wait until the disk has everything that was written to the file system of this descriptor. Raises OSError."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def sync_all(descriptor: int) -> None:
    """Write all file systems to disk. Does nothing on Windows, which has no such call."""
    if sys.platform != "win32":
        os.sync()
