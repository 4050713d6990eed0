"""The system calls of the spool. The writer's thread of `AuditSink` makes them, and commands use some of them.

A test replaces them to let a disk fill up or fail.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from klamm.runtime import PLATFORM, sync_directory
from klamm_spark.storage.filesystems import open_local

_WRITE_BYTES: Final = 1 << 20


class SpoolFiles:
    """The system calls for files. Each method raises OSError."""

    def open_append(self, path: Path) -> int:
        """Return a descriptor that appends to a new or an old file."""
        return PLATFORM.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def read(self, path: Path) -> bytes:
        """Return the whole file."""
        with open(open_local(path), "rb") as file:
            return file.read()

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some or all of the data, and return the number of bytes that were written."""
        return os.write(descriptor, data)

    def write_all(self, descriptor: int, data: bytes) -> None:
        """Write all bytes. After an error, some of them may be in the file."""
        view = memoryview(data)
        while view:
            view = view[self.write(descriptor, view[:_WRITE_BYTES]) :]

    def fsync(self, descriptor: int) -> None:
        """Wait until the disk has the file."""
        PLATFORM.sync(descriptor)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        """Cut a file."""
        os.ftruncate(descriptor, size_bytes)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Write a file whole and synced, or not at all. The directory is not synced yet."""
        # The name begins with a dot, so that readers do not take the file for a segment.
        temporary = path.with_name(f".{path.name}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = PLATFORM.open(temporary, flags, 0o640)
        try:
            try:
                self.write_all(descriptor, data)
                self.fsync(descriptor)
            finally:
                os.close(descriptor)
            self.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def make_folder(self, path: Path) -> None:
        """Create a folder, unless it exists."""
        path.mkdir(mode=0o700, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name."""
        PLATFORM.replace(source, target)

    def sync_directory(self, path: Path) -> None:
        """Make renames and deletions in a directory durable."""
        sync_directory(path)

    def stat(self, path: Path) -> os.stat_result:
        """Return the size and the times of a file."""
        return path.stat()

    def remove(self, path: Path) -> None:
        """Delete a file, if it exists."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Delete an empty folder, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def lock(self, path: Path) -> int:
        """Return a descriptor that holds the lock until it is closed.

        Raises BlockingIOError if another process has the lock.
        """
        descriptor = PLATFORM.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            PLATFORM.take_lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
