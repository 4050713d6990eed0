"""The lock of a data directory, which Kafka's brokers respect too."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from struct import Struct
from typing import Final

LOCK_FILE: Final = ".lock"
_LOCKED: Final = frozenset({errno.EACCES, errno.EAGAIN})
_FLOCK: Final = Struct("@hhqqi0q")
"""C's `struct flock`: type, whence, start, length, process. A length of 0 is the whole file."""


class DataDirectoryLockedError(Exception):
    """Another process, or another broker of this one, uses the data directory."""


class DirectoryLock:
    """Keeps other brokers out of a directory from `take` until `release`.

    The lock belongs to the open file, so that it keeps brokers of one process apart as well as those of several, and
    Kafka's, whose locks belong to a process. One of these would end when any descriptor of the file is closed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> None:
        """Keep others out from now on. Raises DataDirectoryLockedError, OSError."""
        path = self._directory / LOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _LOCKED:
                raise
            raise DataDirectoryLockedError(
                f"{self._directory} is in use by another broker ({path} is locked)"
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others in. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
