"""`FileOperations`: the system calls that the log makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from klamm.runtime import PLATFORM

_FILE_MODE: Final = 0o644


class FileOperations:
    """The system calls that change or read files. Tests replace them by calls that fail."""

    __slots__ = ()

    close = staticmethod(os.close)
    fsync = staticmethod(PLATFORM.sync)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    ftruncate = staticmethod(os.ftruncate)
    pread = staticmethod(PLATFORM.pread)
    pwrite = staticmethod(PLATFORM.pwrite)
    rename = staticmethod(PLATFORM.replace)
    unlink = staticmethod(os.unlink)

    def open(self, path: str | Path, flags: int) -> int:
        """Return a descriptor of the file. Create the file if `flags` contain O_CREAT."""
        return PLATFORM.open(path, flags, _FILE_MODE)

    def write_all(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all data. Raises OSError; then any part of the data may be in the file."""
        written = self.pwrite(descriptor, data, position)
        if written < len(data):
            view = memoryview(data)
            while written < len(data):
                written += self.pwrite(descriptor, view[written:], position + written)

    def replace_content(self, path: Path, content: bytes, *, sync: bool) -> None:
        """Replace the file's content atomically: after a crash the file has either the old or the new content."""
        temporary = path.with_name(path.name + ".tmp")
        descriptor = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0))
        try:
            self.write_all(descriptor, content, 0)
            if sync:
                self.fsync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file, or a directory with its content, if it exists. Raises OSError."""
        try:
            self.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            # The error of unlink for a directory differs between systems.
            if not path.is_dir():
                raise
            for entry in path.iterdir():
                self.remove(entry)
            self.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        """Make the changes to a directory's entries durable: files created, renamed and removed in it."""
        if not PLATFORM.directory_flags:
            return
        descriptor = self.open(path, os.O_RDONLY | PLATFORM.directory_flags)
        try:
            self.fsync(descriptor)
        finally:
            self.close(descriptor)


def _no_sync(fd: Any) -> None:
    """Do nothing."""


class UnsyncedFileOperations(FileOperations):
    """The system calls without syncs, for a data directory that is removed with the server and need not survive a power
    failure.
    """

    __slots__ = ()

    fsync = staticmethod(_no_sync)
