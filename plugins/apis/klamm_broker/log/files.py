"""File descriptors that close when the last reader is done.

Thousands of partitions must not need thousands of descriptors. So a `LogFile` opens its file at the first use, and
`OpenFiles` closes the files that were not used for the longest time.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

from klamm.runtime import PLATFORM
from klamm_broker.log.file_operations import FileOperations

_pread: Final = PLATFORM.pread
_preadv: Final = PLATFORM.preadv
DEFAULT_MAX_OPEN_FILES: Final = 1024


class FileHandle:
    """An open descriptor with a count of its users. The last user closes it."""

    __slots__ = ("_lock", "_operations", "_users", "fd")

    def __init__(self, operations: FileOperations, fd: int) -> None:
        self.fd = fd
        self._operations = operations
        self._users = 1
        # Protects the count of users. The last user closes the descriptor.
        self._lock = threading.Lock()

    def try_acquire(self) -> bool:
        """Count one more user. Return False if the descriptor was closed meanwhile."""
        with self._lock:
            if not self._users:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._operations.close(self.fd)


class FileRegion:
    """A region of an open file, valid until `close` even if the file is renamed or its log deleted."""

    __slots__ = ("_handle", "position", "size_bytes")

    def __init__(self, handle: FileHandle, position: int, size_bytes: int) -> None:
        self._handle: FileHandle | None = handle
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        """Return the descriptor. Raises ValueError after `close`."""
        if self._handle is None:
            raise ValueError("the region is closed")
        return self._handle.fd

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes at a position of the file; fewer only at its end."""
        return _pread(self.fileno(), size_bytes, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer from `position` of the file. Return the number of bytes read."""
        return _preadv(self.fileno(), [buffer], position)

    def read_bytes(self) -> bytes:
        """Return all bytes of the region."""
        return self.read(self.position, self.size_bytes)

    def close(self) -> None:
        """Release the file. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.release()

    def __del__(self) -> None:
        self.close()


class OpenFiles:
    """The open files. If there are more than `max_open`, files that were not used since the last check are closed."""

    __slots__ = ("_files", "_lock", "_max_open")

    def __init__(self, max_open: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self._max_open = max_open
        self._files: dict[LogFile, None] = {}
        # Protects the order of last use.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: LogFile) -> None:
        """Add a file that has been opened."""
        to_close = []
        with self._lock:
            self._files[file] = None
            while len(self._files) > self._max_open:
                oldest = next(iter(self._files))
                del self._files[oldest]
                if oldest.used or oldest is file:
                    oldest.used = False
                    self._files[oldest] = None
                else:
                    to_close.append(oldest)
        for unused in to_close:
            unused.release()

    def discard(self, file: LogFile) -> None:
        """Forget a file that its owner has closed."""
        with self._lock:
            self._files.pop(file, None)


class StoredPath:
    """A path in three parts. Paths share equal parts, because many thousand logs have several files each.

    The parts are the directory, the digits at the start of the name, and the rest of the name.
    """

    __slots__ = ("_digits", "_directory", "_ending")

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def path(self) -> Path:
        """The path of the file, which need not exist."""
        return Path(self._directory, self._digits + self._ending)

    @path.setter
    def path(self, path: Path) -> None:
        name = path.name
        ending = name.lstrip("0123456789")
        self._directory = stored_directory(path.parent)
        self._digits = sys.intern(name[: len(name) - len(ending)])
        self._ending = sys.intern(ending)


def stored_directory(directory: Path) -> str:
    """Return a directory as `StoredPath` stores it. A `Path` would use three times the memory."""
    return sys.intern(str(directory))


class LogFile(StoredPath):
    """A file that is opened at its first use. Readers and the writer share the descriptor, on any thread."""

    __slots__ = ("_handle", "_lock", "_open_files", "closed", "operations", "used")

    def __init__(self, path: Path, operations: FileOperations, open_files: OpenFiles) -> None:
        super().__init__(path)
        self.operations = operations
        self.used = False
        self._open_files = open_files
        self.closed = False
        """True once the owner has closed the file. A later user opens the path, which may be another file by then."""
        self._handle: FileHandle | None = None
        # Protects the handle, the path and `closed`.
        self._lock = threading.Lock()

    def acquire(self) -> FileHandle:
        """Return the handle, and count the caller as its user. Raises OSError."""
        self.used = True
        handle = self._handle
        if handle is not None and handle.try_acquire():
            return handle
        with self._lock:
            handle = self._handle
            if handle is not None and handle.try_acquire():
                return handle
            handle = FileHandle(self.operations, self.operations.open(self.path, os.O_RDWR))
            if self.closed:
                # Only this late reader uses the handle, and closes it.
                return handle
            handle.try_acquire()
            self._handle = handle
        self._open_files.add(self)
        return handle

    def create(self) -> None:
        """Create the file if it does not exist."""
        self.operations.close(self.operations.open(self.path, os.O_RDWR | os.O_CREAT))

    def modified_ms(self) -> int:
        """Return the time of the file's last write, in milliseconds since the epoch. Raises OSError."""
        return self.path.stat().st_mtime_ns // 1_000_000

    def region(self, position: int, size_bytes: int) -> FileRegion:
        return FileRegion(self.acquire(), position, size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes at a position; fewer only at the end of the file."""
        handle = self.acquire()
        try:
            return self.operations.pread(handle.fd, size_bytes, position)
        finally:
            handle.release()

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all data at a position. Raises OSError; then any part of the data may be in the file."""
        with self._lock:
            handle = self._handle
            if handle is not None:
                # The handle cannot be released meanwhile, so this call need not count as a user.
                self.used = True
                self.operations.write_all(handle.fd, data, position)
                return
        handle = self.acquire()
        try:
            self.operations.write_all(handle.fd, data, position)
        finally:
            handle.release()

    def truncate(self, size_bytes: int) -> None:
        handle = self.acquire()
        try:
            self.operations.ftruncate(handle.fd, size_bytes)
        finally:
            handle.release()

    def sync(self) -> None:
        """Make the written bytes durable."""
        handle = self.acquire()
        try:
            self.operations.fsync(handle.fd)
        finally:
            handle.release()

    def move(self, path: Path) -> None:
        """Rename the file. Readers that have it open can still read it."""
        with self._lock:
            self.operations.rename(self.path, path)
            self.path = path

    def release(self) -> None:
        """Close the descriptor once its users have released it. The next use opens the file again."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.release()

    def close(self) -> None:
        """Close the file like `release`. The owner calls this; from now on each use opens a descriptor of its own."""
        with self._lock:
            self.closed = True
        self._open_files.discard(self)
        self.release()
