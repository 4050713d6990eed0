"""The result of a read of the log, with the boundaries of its batches, because share groups acquire whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.wire.records import HEADER_BYTES, RecordBatchHeader, unpack_header
from klamm_broker.log.files import FileRegion
from klamm_broker.log.reader import LogRead
from klamm_broker.share.partition import FetchedBatch

_HEADERS_READ_BYTES: Final = 8 * 1024


class ReadBatches(NamedTuple):
    """Whole batches: `records` are their bytes, and `ends` are the positions in these bytes at which the batches
    end.
    """

    records: FileRegion | bytes
    batches: Sequence[FetchedBatch]
    ends: Sequence[int] = ()

    @property
    def size_bytes(self) -> int:
        """The size of all records in bytes."""
        return self.ends[-1] if self.ends else 0

    def close(self) -> None:
        """Close the records, because they will not be sent."""
        if isinstance(self.records, FileRegion):
            self.records.close()

    def between(self, first: int, last: int) -> ReadBatches:
        """Return the batches between these offsets. The result owns the records, so this object must not be used
        afterwards. Without such batches, the records are closed.
        """
        wanted = [index for index, batch in enumerate(self.batches) if batch.last >= first and batch.first <= last]
        if not wanted or not isinstance(self.records, FileRegion):
            self.close()
            return ReadBatches(b"", [])
        start = self.ends[wanted[0] - 1] if wanted[0] else 0
        end = self.ends[wanted[-1]]
        self.records.position += start
        self.records.size_bytes = end - start
        chosen = slice(wanted[0], wanted[-1] + 1)
        return ReadBatches(self.records, self.batches[chosen], [each - start for each in self.ends[chosen]])


def read_batches(got: LogRead, last_offset: int, most: int) -> ReadBatches:
    """Return the whole batches of a read that begin at or before `last_offset`, or within `most` offsets of the first
    batch.

    If the last batch is cut off, it is left out. The result owns the region of the file.
    """
    records = got.records
    if not isinstance(records, FileRegion):
        return ReadBatches(b"", [])
    aborted = _Aborted(got.aborted_transactions or ())
    batches: list[FetchedBatch] = []
    ends: list[int] = []
    position, size_bytes = 0, records.size_bytes
    chunk, chunk_start = b"", 0
    while position + HEADER_BYTES <= size_bytes:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            chunk = records.read(records.position + position, min(_HEADERS_READ_BYTES, size_bytes - position))
            chunk_start = position
            if len(chunk) < HEADER_BYTES:
                break
        header = RecordBatchHeader._make(unpack_header(chunk, position - chunk_start))
        position += header.size_bytes
        if not ends:
            last_offset = max(last_offset, header.base_offset + most - 1)
        if position > size_bytes or header.base_offset > last_offset:
            break
        batches.append(FetchedBatch(header.base_offset, header.last_offset, aborted.has(header)))
        ends.append(position)
    if not ends:
        records.close()
        return ReadBatches(b"", [])
    records.size_bytes = ends[-1]
    return ReadBatches(records, batches, ends)


class _Aborted:
    """The aborted transactions of a read. The caller passes each batch, in order.

    A marker ends its producer's open transaction. A producer has at most one.
    """

    def __init__(self, transactions: Sequence[tuple[int, int]]) -> None:
        self._starts = sorted(transactions, key=lambda each: each[1], reverse=True)
        self._open: set[int] = set()

    def has(self, header: RecordBatchHeader) -> bool:
        while self._starts and self._starts[-1][1] <= header.last_offset:
            self._open.add(self._starts.pop()[0])
        if header.is_control:
            self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open
