"""The state of the producers that write to a log, for idempotence and transactions (KIP-98).

Follows Kafka's `ProducerStateManager`, `ProducerAppendInfo` and `ProducerStateEntry`; a snapshot is in the format of
Kafka's `ProducerSnapshot`, version 1. Guarded by the lock of the log.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from klamm import ErrorCode, KafkaError
from klamm.wire.records import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ControlRecordType,
    EndTransactionMarker,
    RecordBatchHeader,
)

BATCHES_KEPT: Final = 5
"""Number of batches that a producer may have in flight, and may therefore send again."""

NO_OFFSET: Final = -1
_SEQUENCES: Final = 2**31
_LAST_SEQUENCE: Final = _SEQUENCES - 1
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_START: Final = 6
_MAX_PLAUSIBLE_ID: Final = 2**62
UNLIMITED: Final = 2**62
_STEPS: Final = 16
_NO_TRANSACTIONS: Final[dict[int, int]] = {}
"""The open transactions of a log that has none. All such logs share it, and it stays empty."""


class BatchMetadata(NamedTuple):
    """The data of a batch that identify a duplicate."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES


class ProducerStateEntry:
    """One producer. Its epochs, its timestamp and the start offset of its open transaction are -1 if it has none.

    `last_offset` is the offset of the producer's last batch or marker. After `ProducerStateManager.load`, it is the
    offset of the last batch in the snapshot, or -1 if the snapshot has no batch of the producer. It measures the
    producer's age, because producers choose their timestamps freely.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_offset",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = NO_TIMESTAMP,
        current_transaction_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_transaction_first_offset = current_transaction_first_offset
        self.last_offset = NO_OFFSET
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        """Return the last sequence number of the last batch, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def in_transaction(self) -> bool:
        return self.current_transaction_first_offset != NO_OFFSET

    def copy(self) -> ProducerStateEntry:
        """Return a copy for readers that do not hold the lock. Its `last_offset` is -1."""
        copied = ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp_ms,
            self.current_transaction_first_offset,
        )
        copied.batches = self.batches.copy()
        return copied

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Forget the batches of an earlier epoch."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()


class CompletedTransaction(NamedTuple):
    """A transaction whose marker, at `last_offset`, has been appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class CorruptSnapshotError(Exception):
    """Raised for a producer snapshot that cannot be read."""


class ProducerLimit:
    """The maximum number of producers that a log may remember. `ProducerTotal` limits the total of several logs."""

    __slots__ = ("evicted", "limit", "step")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.step = max(1, limit // _STEPS)
        self.evicted = 0

    def added(self, count: int = 1) -> None:
        """Called when producers are new to a log. The caller may hold the log's lock.

        Does nothing here. `ProducerTotal` counts the producers.
        """

    def count_evicted(self, count: int) -> None:
        """Count producers that a log has forgotten to make room."""
        self.evicted += count


_NO_LIMIT: Final = ProducerLimit()


class ProducerStateManager:
    """The producers of one log. The log calls `check_…` before it writes a batch, and `add_…` afterwards."""

    __slots__ = ("_ongoing", "_total", "entries")

    def __init__(self, total: ProducerLimit = _NO_LIMIT) -> None:
        self._total = total
        self.entries: dict[int, ProducerStateEntry] = {}
        # The producer id of each open transaction, by first offset, in ascending order.
        self._ongoing = _NO_TRANSACTIONS

    @property
    def first_undecided_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction."""
        return next(iter(self._ongoing)) if self._ongoing else None

    def check_batch(self, header: RecordBatchHeader) -> BatchMetadata | None:
        """Check that a producer may append this batch. If the batch is a duplicate, return its stored data.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE for a batch outside
        the producer's open transaction.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch, sequence = header.producer_epoch, header.base_sequence
        if epoch == entry.producer_epoch:
            last_sequence = header.last_sequence
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == sequence:
                    return batch
            expected = 0 if entry.last_sequence == _LAST_SEQUENCE else entry.last_sequence + 1
        elif epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {entry.producer_id} has epoch {entry.producer_epoch}, but the batch has {epoch}.",
            )
        else:
            expected = 0
        # As in Kafka, a producer whose entry has no epoch may continue with any sequence number.
        if sequence != expected and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {entry.producer_id} must continue at sequence {expected}, but the batch starts at "
                f"{sequence}.",
            )
        if entry.in_transaction and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"Producer {entry.producer_id} is in a transaction, but the batch is not."
            )
        return None

    def check_marker(self, header: RecordBatchHeader, marker: EndTransactionMarker) -> None:
        """Raise KafkaError for a marker of an old epoch: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {entry.producer_id} has epoch {entry.producer_epoch}, but the marker has "
                f"{header.producer_epoch}.",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator has epoch {entry.coordinator_epoch}, but the marker has {marker.coordinator_epoch}.",
            )

    def add_batch(self, header: RecordBatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """Update the state after a batch of data was appended at this offset."""
        entry = self._entry(header.producer_id)
        if entry.producer_epoch != header.producer_epoch:
            entry.move_to_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        entry.last_offset = last_offset = base_offset + delta
        batches.append(BatchMetadata(header.last_sequence, last_offset, delta, timestamp_ms))
        entry.last_timestamp_ms = timestamp_ms
        if header.is_transactional and not entry.in_transaction:
            entry.current_transaction_first_offset = base_offset
            if self._ongoing:
                self._ongoing[base_offset] = header.producer_id
            else:
                self._ongoing = {base_offset: header.producer_id}

    def add_marker(
        self, header: RecordBatchHeader, marker: EndTransactionMarker, offset: int, timestamp_ms: int
    ) -> CompletedTransaction | None:
        """Update the state after a marker was appended at this offset. Return the transaction that it ends, if the
        transaction has a batch in the log.
        """
        entry = self._entry(header.producer_id)
        first_offset = entry.current_transaction_first_offset
        entry.move_to_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.last_offset = offset
        entry.current_transaction_first_offset = NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        del self._ongoing[first_offset]
        first_undecided = self.first_undecided_offset
        return CompletedTransaction(
            header.producer_id,
            first_offset,
            offset,
            marker.type is ControlRecordType.ABORT,
            offset + 1 if first_undecided is None else first_undecided,
        )

    def _entry(self, producer_id: int) -> ProducerStateEntry:
        entry = self.entries.get(producer_id)
        if entry is None:
            self._make_room()
            entry = self.entries[producer_id] = ProducerStateEntry(producer_id)
        return entry

    def _make_room(self) -> None:
        total, count = self._total, len(self.entries)
        # Checked only once in `step` producers, because a search costs time and may find none to evict.
        if count > total.limit - total.step and not count % total.step:
            total.count_evicted(self.evict(self.longest_idle(2 * total.step)()))
        total.added()

    @property
    def idle_count(self) -> int:
        """Return the number of producers without an open transaction."""
        return len(self.entries) - len(self._ongoing)

    def longest_idle(self, count: int) -> Callable[[], list[tuple[int, int]]]:
        """Return a function that finds the `count` producers without an open transaction whose last writes are the
        oldest.

        The function needs no lock, and returns the producers' last offsets and ids.
        """
        entries = list(self.entries.values())
        return lambda: heapq.nsmallest(
            count, ((each.last_offset, each.producer_id) for each in entries if not each.in_transaction)
        )

    def evict(self, producers: Iterable[tuple[int, int]]) -> int:
        """Forget these producers, except any that have written since. Return the number of forgotten producers."""
        evicted = 0
        for last_offset, producer_id in producers:
            entry = self.entries.get(producer_id)
            if entry is not None and entry.last_offset == last_offset and not entry.in_transaction:
                del self.entries[producer_id]
                evicted += 1
        return evicted

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that have not written for this long."""
        self.entries = {
            producer_id: entry
            for producer_id, entry in self.entries.items()
            if entry.in_transaction or now_ms - entry.last_timestamp_ms < expiration_ms
        }

    @property
    def highest_id(self) -> int:
        """Return the highest producer id; -1 if there is none. Ids that were never allocated are ignored."""
        return max((each for each in self.entries if each < _MAX_PLAUSIBLE_ID), default=-1)

    def clear(self) -> None:
        """Forget all producers."""
        self.entries = {}
        self._ongoing = _NO_TRANSACTIONS

    def snapshot(self) -> bytes:
        """Return the state that survives a restart: the last batch of each producer."""
        out = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self.entries)))
        for entry in self.entries.values():
            last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
            out += _SNAPSHOT_ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
            )
        _SNAPSHOT_HEAD.pack_into(out, 0, _SNAPSHOT_VERSION, crc32c(memoryview(out)[_CRC_START:]), len(self.entries))
        return bytes(out)

    def load(self, snapshot: bytes) -> None:
        """Replace the state by a snapshot. If it raises CorruptSnapshotError, the state is unchanged."""
        self._replace(_read_snapshot(snapshot))

    def _replace(self, entries: Iterable[ProducerStateEntry]) -> None:
        self.entries = {entry.producer_id: entry for entry in entries}
        self._ongoing = dict(
            sorted(
                (entry.current_transaction_first_offset, entry.producer_id)
                for entry in self.entries.values()
                if entry.in_transaction
            )
        )


def _read_snapshot(snapshot: bytes) -> list[ProducerStateEntry]:
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(snapshot)
    except struct_error:
        raise CorruptSnapshotError(f"{len(snapshot)} bytes are not a snapshot") from None
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version}, but only {_SNAPSHOT_VERSION} is known")
    if crc32c(snapshot[_CRC_START:]) != crc:
        raise CorruptSnapshotError("the CRC is wrong")
    if len(snapshot) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries in {len(snapshot)} bytes")
    entries = []
    for (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp_ms,
        coordinator_epoch,
        current_transaction_first_offset,
    ) in _SNAPSHOT_ENTRY.iter_unpack(snapshot[_SNAPSHOT_HEAD.size :]):
        entry = ProducerStateEntry(
            producer_id, producer_epoch, coordinator_epoch, timestamp_ms, current_transaction_first_offset
        )
        if last_offset >= 0:
            entry.last_offset = last_offset
            entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms))
        entries.append(entry)
    return entries
