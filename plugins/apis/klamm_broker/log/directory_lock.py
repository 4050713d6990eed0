"""The lock of a data directory. On Linux, Kafka's brokers respect it too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from klamm.runtime import PLATFORM

LOCK_FILE: Final = ".lock"


class DataDirectoryLockedError(Exception):
    """Raised if another process, or another broker of this process, uses the data directory."""


class DirectoryLock:
    """A lock that keeps other brokers out of a directory from `take` until `release`.

    The lock belongs to the open file, so it also separates brokers within one process. Kafka's locks belong to a
    process, and this lock respects them. klamm does not take such a lock itself, because it would end as soon as any
    descriptor of the file is closed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> None:
        """Keep other brokers out from now on. Raises DataDirectoryLockedError, OSError."""
        path = self._directory / LOCK_FILE
        descriptor = PLATFORM.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            PLATFORM.take_lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            raise DataDirectoryLockedError(
                f"{self._directory} is in use by another broker ({path} is locked)"
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Allow other brokers again. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
