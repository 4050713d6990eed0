"""The rules that select the records that compaction keeps, without access to files. They follow Kafka's `Cleaner` and
`MemoryRecords.filterTo`.

A record stays if it is the last of its key. A tombstone (no value) and the marker of a transaction without remaining
records stay for `delete.retention.ms` after the first pass that finds them. That pass writes the end of this time into
the header of the batch, as the delete horizon (KIP-534). Records of aborted transactions are removed at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from klamm.wire.records import (
    NO_PRODUCER_ID,
    ControlRecordType,
    RecordBatchHeader,
    decode_end_transaction_marker,
    decode_records,
    encode_batch_like,
    encode_empty_batch,
)
from klamm_broker.log.indexes import AbortedTransaction
from klamm_broker.log.producer_state import ProducerStateEntry


class OffsetMap:
    """The last offset of each key, within a limit of memory. The cleaner makes it for one log, on its own thread.

    `latest_offset` is the last offset of the batches that were read for the map. The cleaner sets it.
    """

    __slots__ = ("_bytes_left", "_offsets", "latest_offset")

    _ENTRY_BYTES = 160

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0

    def put(self, key: bytes, offset: int) -> None:
        """Add the offset of the latest record with this key."""
        if key not in self._offsets:
            self._bytes_left -= len(key) + self._ENTRY_BYTES
        self._offsets[key] = offset

    def offset_of(self, key: bytes) -> int:
        """Return the last offset of a key, or -1."""
        return self._offsets.get(key, -1)


class TransactionFilter:
    """A filter that finds batches of aborted transactions, and markers whose transactions have no batches left.

    It must see every batch, in order. Follows Kafka's `CleanedTransactionMetadata`.
    """

    __slots__ = ("_aborted", "_committed", "_on_aborted", "_ongoing")

    def __init__(
        self,
        aborted: Iterable[AbortedTransaction],
        on_aborted: Callable[[AbortedTransaction], None] = lambda _aborted: None,
    ) -> None:
        self._aborted = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._on_aborted = on_aborted
        # By producer: its aborted transaction, and True if a batch of the transaction has been seen.
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()

    def is_discardable(self, header: RecordBatchHeader, batch: memoryview) -> bool:
        """Return True if the batch belongs to an aborted transaction, or is a marker whose transaction has no batches
        left.
        """
        while self._aborted and self._aborted[0].first_offset <= header.last_offset:
            transaction = self._aborted.popleft()
            self._ongoing.setdefault(transaction.producer_id, (transaction, False))
        producer_id = header.producer_id
        if header.is_control:
            return self._is_needless_marker(producer_id, batch)
        if not header.is_transactional:
            return False
        if producer_id not in self._ongoing:
            self._committed.add(producer_id)
            return False
        self._ongoing[producer_id] = (self._ongoing[producer_id][0], True)
        return True

    def _is_needless_marker(self, producer_id: int, batch: memoryview) -> bool:
        marker = decode_end_transaction_marker(batch)
        if marker is None:
            return True
        if marker.type is ControlRecordType.ABORT:
            transaction, met = self._ongoing.pop(producer_id, (None, False))
            if transaction is not None and met:
                self._on_aborted(transaction)
            return not met
        if producer_id in self._committed:
            self._committed.discard(producer_id)
            return False
        return True


class BatchFilter:
    """A filter that selects the records to keep in each batch. It must see every batch, in order.

    `end_offset` is the end of the pass. The batch before it is kept, even if it is empty, so that the log's end offset
    stays the same.
    """

    __slots__ = ("_delete_retention_ms", "_end_offset", "_map", "_now_ms", "_producers", "_transactions")

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: TransactionFilter,
        producers: Iterable[ProducerStateEntry],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offsets
        self._transactions = transactions
        self._producers = {
            entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch)
            for entry in producers
        }
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def keep(self, header: RecordBatchHeader, batch: memoryview) -> bytes | bytearray | memoryview | None:
        """Return the bytes that replace a batch: the batch itself, a batch with fewer records, or None."""
        discardable = self._transactions.is_discardable(header, batch)
        horizon_ms = header.delete_horizon_ms
        drop_all = discardable
        if header.is_control:
            drop_all = discardable and horizon_ms is not None and horizon_ms <= self._now_ms
        kept = []
        has_tombstones = False
        if not drop_all:
            for record in decode_records(batch):
                if header.is_control or self._keeps(record.offset, record.key, record.value, horizon_ms):
                    kept.append(record)
                    has_tombstones = has_tombstones or record.value is None
        if not kept:
            return encode_empty_batch(header) if self._must_stay(header) else None
        needs_horizon = horizon_ms is None and (has_tombstones or (discardable and header.is_control))
        if len(kept) == header.records_count and not needs_horizon:
            return batch
        new_horizon_ms = self._now_ms + self._delete_retention_ms if needs_horizon else horizon_ms
        return encode_batch_like(header, kept, delete_horizon_ms=new_horizon_ms, last_offset=header.last_offset)

    def _keeps(self, offset: int, key: bytes | None, value: bytes | None, horizon_ms: int | None) -> bool:
        if offset > self._map.latest_offset:
            return True
        if key is None or offset < self._map.offset_of(key):
            return False
        return value is not None or horizon_ms is None or self._now_ms < horizon_ms

    def _must_stay(self, header: RecordBatchHeader) -> bool:
        """Return True for the last batch of the pass, and for the last batch of a producer, because the producer's
        sequence numbers continue from there.
        """
        if header.last_offset + 1 == self._end_offset:
            return True
        if header.producer_id <= NO_PRODUCER_ID or header.producer_id not in self._producers:
            return False
        last_data_offset, producer_epoch = self._producers[header.producer_id]
        if last_data_offset < 0:
            return header.is_control and header.producer_epoch == producer_epoch
        return header.last_offset == last_data_offset
