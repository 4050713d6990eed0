"""The lock of a data directory, which Kafka's brokers respect too."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_FILE: Final = ".lock"


class DataDirectoryLockedError(Exception):
    """Another process, or another broker of this one, uses the data directory."""


class DirectoryLock:
    """Keeps other brokers out of a directory from `take` until `release`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises DataDirectoryLockedError, OSError."""
        path = self._directory / LOCK_FILE
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock keeps brokers of one process apart, lockf Kafka, which locks that way.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DataDirectoryLockedError(
                f"{self._directory} is in use by another broker ({path} is locked)"
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """May be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
