"""The indexes of a segment, in the file formats of Kafka's `OffsetIndex`, `TimeIndex` and `TransactionIndex`.

Entries are buffered in memory, and appended to the file when the segment is flushed, rolled or closed. If a crash comes
before that, recovery rebuilds the index from the segment. An index that is not in use occupies no memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple

from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import StoredPath

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ABORTED_TRANSACTION: Final = Struct(">hqqqq")
_pack_offset_entry: Final = _OFFSET_ENTRY.pack
_pack_time_entry: Final = _TIME_ENTRY.pack
_unpack_timestamp: Final = Struct(">q").unpack_from


class Index(StoredPath):
    """A sorted file of entries of the same size. Its segment makes it. Any thread may search while the log appends.

    The indexes of a segment share a lock, which is not held during a sync.
    """

    __slots__ = ("_data", "_file_bytes", "_lock", "_operations")
    _entry: ClassVar[Struct]

    def __init__(self, path: Path, operations: FileOperations, lock: threading.Lock, *, is_new: bool) -> None:
        super().__init__(path)
        self._operations = operations
        # The first entry creates the buffer, because most new indexes stay empty for a long time.
        self._data: bytes | bytearray | None = b"" if is_new else None
        # Number of bytes in the file that equal those in memory; None if it is unknown.
        self._file_bytes: int | None = None
        # Protects the entries in memory and in the file.
        self._lock = lock

    def _loaded(self) -> bytes | bytearray:
        data = self._data
        if data is None:
            data = bytearray(self.path.read_bytes() if self.path.exists() else b"")
            torn_bytes = len(data) % self._entry.size
            del data[len(data) - torn_bytes :]
            self._file_bytes = None if torn_bytes else len(data)
            self._data = data
        return data

    def _buffer(self) -> bytearray:
        """Return the buffer of entries for a change."""
        data = self._data
        if type(data) is not bytearray:
            data = self._data = bytearray(self._loaded())
        return data

    @property
    def size_bytes(self) -> int:
        """Return the size of all entries, written or not."""
        with self._lock:
            return len(self._loaded())

    def entries(self) -> list[tuple[Any, ...]]:
        """Return every entry, in order."""
        with self._lock:
            return list(self._entry.iter_unpack(self._loaded()))

    def _append(self, entry: bytes) -> None:
        with self._lock:
            data = self._buffer()
            data += entry

    def _last(self) -> tuple[Any, ...] | None:
        with self._lock:
            data = self._loaded()
            return self._entry.unpack_from(data, len(data) - self._entry.size) if data else None

    def _search(self, field: int, target: int, step: int) -> tuple[Any, ...] | None:
        """Return the last entry whose field is not greater than the target (step -1), or the entry after it (step 0).

        Return None if there is no such entry. The values of each field ascend.
        """
        size = self._entry.size
        unpack = self._entry.unpack_from
        with self._lock:
            data = self._loaded()
            low, high = 0, len(data) // size
            while low < high:
                middle = (low + high) // 2
                if unpack(data, middle * size)[field] <= target:
                    low = middle + 1
                else:
                    high = middle
            position = (low + step) * size
            return unpack(data, position) if 0 <= position < len(data) else None

    def _truncate(self, keep: Callable[[tuple[Any, ...]], bool]) -> None:
        """Drop the first entry that `keep` refuses, and all entries after it."""
        with self._lock:
            data = self._buffer()
            kept_bytes = 0
            for entry in self._entry.iter_unpack(data):
                if not keep(entry):
                    break
                kept_bytes += self._entry.size
            if kept_bytes < len(data):
                del data[kept_bytes:]
                self._file_bytes = None

    def reset(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._data = b""
            self._file_bytes = None

    def flush(self, *, sync: bool = False) -> None:
        """Write missing entries to the file. Raises OSError; then the next call tries again."""
        with self._lock:
            descriptor = self._open_written(sync=sync)
        if descriptor is not None:
            # The lock is not held here, so that appends and searches do not wait for the disk.
            try:
                if sync:
                    self._operations.fsync(descriptor)
            finally:
                self._operations.close(descriptor)

    def _open_written(self, *, sync: bool) -> int | None:
        """Write the missing entries, and return the descriptor of the file. Return None if there is nothing to write or
        to sync. Raises OSError.
        """
        data = self._data
        if data is None:
            return self._open_existing() if sync else None
        if self._file_bytes == len(data) and not sync:
            return None
        descriptor = self._operations.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            start = self._file_bytes
            if start is None:
                start = self._keep_equal_part(descriptor, data)
            if start < len(data):
                self._operations.write_all(descriptor, bytes(data[start:]), start)
        except BaseException:
            self._operations.close(descriptor)
            raise
        self._file_bytes = len(data)
        return descriptor

    def _keep_equal_part(self, descriptor: int, data: bytes | bytearray) -> int:
        """Cut the file where it differs from the entries in memory. Return its new size.

        Recovery may rebuild an index that was synced long ago, and does not check it again after a power failure. So
        the equal part must stay in the file.
        """
        found = self.path.read_bytes()
        equal_bytes = len(found) if data.startswith(found) else _equal_bytes(found, data)
        if equal_bytes < len(found):
            self._operations.ftruncate(descriptor, equal_bytes)
        return equal_bytes

    def _open_existing(self) -> int | None:
        """Open an index that is only on the disk."""
        try:
            return self._operations.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return None

    def release(self) -> None:
        """Free the memory, if the file has all entries."""
        with self._lock:
            if self._data is not None and len(self._data) == self._file_bytes:
                self._data = None

    def move(self, path: Path) -> None:
        """Rename the file if it exists."""
        with self._lock:
            if self.path.exists():
                self._operations.rename(self.path, path)
            self.path = path


class OffsetIndex(Index):
    """The index that maps the relative offset of a batch's last record to the batch's position. It has one entry for
    every few KiB.
    """

    __slots__ = ()
    _entry = _OFFSET_ENTRY

    def append(self, relative_offset: int, position: int) -> None:
        self._append(_pack_offset_entry(relative_offset, position))

    def lookup(self, relative_offset: int) -> int:
        """Return a position from which a scan finds the batch with the offset, or the next batch."""
        found = self._search(0, relative_offset, -1)
        return found[1] if found is not None else 0

    def offset_at(self, position: int) -> int | None:
        """Return the relative offset of the first entry at or after a position; None if there is none."""
        found = self._search(1, position - 1, 0)
        return found[0] if found is not None else None

    def last_position(self) -> int:
        """Return the position in the last entry, or 0."""
        last = self._last()
        return last[1] if last is not None else 0

    def truncate_to(self, relative_offset: int) -> None:
        """Drop entries at or after an offset."""
        self._truncate(lambda entry: bool(entry[0] < relative_offset))


class TimeIndex(Index):
    """The index that maps the largest timestamp so far to the relative offset of the batch that has it."""

    __slots__ = ()
    _entry = _TIME_ENTRY

    def append_if_later(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry if its timestamp is larger than that of the last entry."""
        with self._lock:
            data = self._buffer()
            if timestamp_ms > (_unpack_timestamp(data, len(data) - _TIME_ENTRY.size)[0] if data else -1):
                data += _pack_time_entry(timestamp_ms, relative_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """Return a relative offset before which all records have smaller timestamps."""
        found = self._search(0, timestamp_ms, -1)
        return found[1] if found is not None else 0

    def last(self) -> tuple[int, int] | None:
        """Return the largest timestamp and its relative offset."""
        last = self._last()
        return (last[0], last[1]) if last is not None else None

    def truncate_to(self, relative_offset: int) -> None:
        """Drop entries at or after an offset."""
        self._truncate(lambda entry: bool(entry[1] < relative_offset))


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted. `last_offset` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(Index):
    """The aborted transactions whose markers lie in the segment. The file exists only if there are any."""

    __slots__ = ()
    _entry = _ABORTED_TRANSACTION

    def append(self, aborted: AbortedTransaction) -> None:
        self._append(_ABORTED_TRANSACTION.pack(0, *aborted))

    def flush(self, *, sync: bool = False) -> None:
        """Write the index like `Index.flush`; an empty index creates no file."""
        if self._data or self.path.exists():
            super().flush(sync=sync)

    def aborted(self) -> Iterator[AbortedTransaction]:
        """Return all aborted transactions, in the order of their markers."""
        return (AbortedTransaction(*entry[1:]) for entry in self.entries())

    def truncate_to(self, offset: int) -> None:
        """Drop transactions whose marker is at or after an offset."""
        self._truncate(lambda entry: bool(entry[3] < offset))


def _equal_bytes(found: bytes, wanted: bytes | bytearray) -> int:
    """Return how many bytes are equal at the beginning of both."""
    for position, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return position
    return min(len(found), len(wanted))
