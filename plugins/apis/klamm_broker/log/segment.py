"""`LogSegment`: a file of batches with its indexes. Follows Kafka's `LogSegment`."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klamm.wire.records import HEADER_BYTES, MAGIC, NO_TIMESTAMP, RecordBatchHeader, unpack_header
from klamm_broker.log.batches import PlacedHeader, read_headers
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import LogFile, OpenFiles
from klamm_broker.log.indexes import AbortedTransaction, Index, OffsetIndex, TimeIndex, TransactionIndex
from klamm_broker.log.producer_state import CompletedTransaction

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

OFFSET_ENTRY_BYTES: Final = 8
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_RECENT_BATCHES: Final = 4096


def offset_file_name(offset: int, suffix: str) -> str:
    """Return Kafka's name of a file that starts at an offset: 20 digits and a suffix."""
    return f"{offset:020d}{suffix}"


def aborted_transaction(completed: CompletedTransaction) -> AbortedTransaction:
    """Return the index entry of a transaction that was aborted."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )


class LogSegment:
    """A file with the batches from `base_offset` on, and its indexes. The last segment of a log is active and grows.

    One thread at a time appends, truncates and moves the segment, under the lock of the log. Any thread may read, up to
    the published size. Bytes after it may be half-written.
    """

    __slots__ = (
        "_bytes_since_index_entry",
        "_max_timestamp",
        "_recent",
        "_torn",
        "base_offset",
        "created_ms",
        "file",
        "index_bytes",
        "first_timestamp_ms",
        "offset_index",
        "roll_jitter_ms",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        operations: FileOperations,
        open_files: OpenFiles,
        *,
        size_bytes: int = 0,
        is_new: bool = True,
        suffix: str = "",
    ) -> None:
        def path(kind: str) -> Path:
            return directory / (offset_file_name(base_offset, kind) + suffix)

        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.file = LogFile(path(LOG_SUFFIX), operations, open_files)
        lock = threading.Lock()  # Guards the three indexes: see `Index`.
        self.offset_index = OffsetIndex(path(INDEX_SUFFIX), operations, lock, is_new=is_new)
        self.time_index = TimeIndex(path(TIME_INDEX_SUFFIX), operations, lock, is_new=is_new)
        self.transaction_index = TransactionIndex(path(TRANSACTION_INDEX_SUFFIX), operations, lock, is_new=is_new)
        # Size in bytes of the offset index, which is the largest index.
        self.index_bytes = 0
        self.roll_jitter_ms = 0
        self.created_ms: int | None = None
        # Largest timestamp of the first batch, from which the segment's age is measured; None if it is not known yet.
        self.first_timestamp_ms: int | None = None
        # Largest timestamp so far, and the last offset of its batch; None if they have to be read from the index.
        self._max_timestamp: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if is_new else None
        self._bytes_since_index_entry = 0
        # Base offsets and positions of the latest batches, without gaps. Readers search them while they grow, so
        # positions are appended first, and both are replaced together.
        self._recent: tuple[list[int], list[int]] = ([], [])
        # True if bytes of a failed write may follow the end.
        self._torn = False

    # Writing

    def append(
        self,
        batch: bytearray | memoryview,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Write a batch at the end. If it raises OSError, the segment is unchanged."""
        position = self.size_bytes
        if self._max_timestamp is None:
            # Done first, because the index may have to be read. If that fails, no bytes have to be cut off the file.
            self.max_timestamp()
        try:
            if self._torn:
                self.cut_torn_tail()
            self.file.write(batch, position)
        except OSError:
            self._undo_write()
            raise
        offsets, positions = self._recent
        positions.append(position)
        offsets.append(base_offset)
        if len(offsets) == 2 * _RECENT_BATCHES:
            self._recent = (offsets[_RECENT_BATCHES:], positions[_RECENT_BATCHES:])
        self.account(position, len(batch), last_offset, max_timestamp_ms, index_interval_bytes)

    def account(
        self,
        position: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Add a batch at the end of the file to the indexes and the size."""
        highest = self._max_timestamp or self.max_timestamp()
        self.size_bytes = position + size_bytes
        if max_timestamp_ms > highest[0]:
            self._max_timestamp = highest = (max_timestamp_ms, last_offset)
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        if self._bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self.time_index.append_if_later(highest[0], highest[1] - self.base_offset)
            self._bytes_since_index_entry = 0
            self.index_bytes += OFFSET_ENTRY_BYTES
        self._bytes_since_index_entry += size_bytes

    def resume(self) -> None:
        """Prepare to append to a segment that already has batches."""
        self.index_bytes = self.offset_index.size_bytes
        self._bytes_since_index_entry = self.size_bytes - self.offset_index.last_position()

    def _undo_write(self) -> None:
        self._torn = True
        try:
            self.cut_torn_tail()
        except OSError:
            # The bytes cannot be cut off now. The next append tries again before it writes.
            return

    def cut_torn_tail(self) -> None:
        """Remove the bytes that a failed write has left after the end. Raises OSError."""
        if self._torn:
            self.file.truncate(self.size_bytes)
            self._torn = False

    def seal(self) -> None:
        """Complete a full segment: finish the time index, write the indexes to disk, and free the buffers for
        appends.
        """
        self.cut_torn_tail()
        self._complete_time_index()
        self.flush_indexes()
        self._recent = ([], [])

    def _complete_time_index(self) -> None:
        timestamp_ms, offset = self.max_timestamp()
        if timestamp_ms >= 0:
            self.time_index.append_if_later(timestamp_ms, offset - self.base_offset)

    def flush_indexes(self, *, sync: bool = False) -> None:
        """Write the indexes to their files. Raises OSError."""
        self.offset_index.flush(sync=sync)
        self.time_index.flush(sync=sync)
        self.transaction_index.flush(sync=sync)

    def sync(self) -> None:
        """Make the segment with its indexes durable. Raises OSError."""
        self.file.sync()
        self.flush_indexes(sync=True)

    def release_indexes(self) -> None:
        """Free the memory of the indexes. The next look-up reads them again."""
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds the offset, and all batches after it. Raises OSError."""
        position = self.position_of(offset, self.size_bytes)
        if position is None:
            position = self.size_bytes
        relative_offset = offset - self.base_offset
        self.offset_index.truncate_to(relative_offset)
        self.time_index.truncate_to(relative_offset)
        self.transaction_index.truncate_to(offset)
        self.file.truncate(position)
        self.size_bytes = position
        self._recent = ([], [])
        self._torn = False
        self._max_timestamp = None
        if position == 0:
            self.first_timestamp_ms = None
            self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self.resume()

    def start_over(self) -> None:
        """Clear the indexes and the size, so that `account` can rebuild them from the file."""
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self.size_bytes = 0
        self.first_timestamp_ms = None
        self._recent = ([], [])
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self.resume()

    # Reading

    def position_of(self, offset: int, end: int) -> int | None:
        """Return the position of the batch that contains an offset, or of the next batch; None if both are not below
        `end`.

        In the active segment the offset must be below the end of the log.
        """
        offsets, positions = self._recent
        index = bisect_right(offsets, offset) - 1
        if index >= 0:
            return positions[index]
        start = self.offset_index.lookup(offset - self.base_offset)
        for batch in read_headers(self.file, start, end):
            if batch.header.last_offset >= offset:
                return batch.position
        return None

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[PlacedHeader]:
        """Return the headers of the batches from a position on."""
        return read_headers(self.file, start, self.size_bytes if end is None else end)

    def header_at(self, position: int) -> RecordBatchHeader:
        """Return the header of the batch at a position. Raises OSError if the log was cut before it meanwhile."""
        if position + HEADER_BYTES <= self.size_bytes:
            data = self.file.read(position, HEADER_BYTES)
            if len(data) == HEADER_BYTES:
                return RecordBatchHeader._make(unpack_header(data, 0))
        raise OSError(f"{self.file.path} ends before byte {position}")

    def next_offset(self) -> int:
        """Return the offset after the last record."""
        next_offset = self.base_offset
        for batch in read_headers(self.file, self.offset_index.last_position(), self.size_bytes):
            next_offset = batch.header.last_offset + 1
        return next_offset

    def is_whole(self) -> bool:
        """Return True if the file ends where its last batch ends."""
        end = self.offset_index.last_position()
        for batch in read_headers(self.file, end, self.size_bytes):
            if batch.header.magic != MAGIC or batch.header.size_bytes < HEADER_BYTES:
                # This is no batch, so its length may lead anywhere, even backwards.
                return False
            end = batch.position + batch.header.size_bytes
        return end == self.size_bytes

    def offset_beyond(self, position: int) -> int | None:
        """Return an offset that is above all records before `position`; None if the index has no such entry."""
        relative_offset = self.offset_index.offset_at(position)
        return None if relative_offset is None else self.base_offset + relative_offset

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, or -1."""
        if self.first_timestamp_ms is None:
            if not self.size_bytes:
                return NO_TIMESTAMP
            self.first_timestamp_ms = self.header_at(0).max_timestamp_ms
        return self.first_timestamp_ms

    def max_timestamp(self) -> tuple[int, int]:
        """Return the largest timestamp (or -1), and the last offset of the batch that has it."""
        found = self._max_timestamp
        if found is None:
            last = self.time_index.last()
            found = (NO_TIMESTAMP, self.base_offset) if last is None else (last[0], last[1] + self.base_offset)
            for batch in self.headers(self.offset_index.last_position()):
                if batch.header.max_timestamp_ms > found[0]:
                    found = (batch.header.max_timestamp_ms, batch.header.last_offset)
            self._max_timestamp = found
        return found

    # Files

    def move(self, directory: Path, suffix: str = "") -> None:
        """Rename all files into a directory, with or without a suffix such as `.deleted`."""
        for part, kind in zip(self._parts(), SEGMENT_SUFFIXES, strict=True):
            part.move(directory / (offset_file_name(self.base_offset, kind) + suffix))

    def _parts(self) -> tuple[LogFile | Index, ...]:
        return (self.file, self.offset_index, self.time_index, self.transaction_index)

    def directory_moved(self, directory: Path) -> None:
        """Note the new name of the directory."""
        for part in self._parts():
            part.path = directory / part.path.name

    def paths(self) -> list[Path]:
        """Return the paths of all files that the segment may have."""
        return [part.path for part in self._parts()]

    def close(self) -> None:
        """Close the file. Readers that have it open can still read it."""
        self.file.close()
