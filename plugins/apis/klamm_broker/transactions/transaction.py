"""One transactional id: its producer, its state, and the partitions of its open transaction."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.limits.ledger import text_bytes
from klamm_broker.transactions.state import (
    COMPLETED,
    DEAD,
    EMPTY,
    NEXT_STATES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_EPOCH_FENCE,
    IllegalTransitionError,
    TransactionState,
)

TopicPartition: TypeAlias = tuple[str, int]
"""Topic name and partition index."""

MAX_EPOCH: Final = 2**15 - 1
NO_TIME: Final = -1
_BUMPS_EPOCH: Final = 2


def bumps_epoch(version: int) -> bool:
    """Return True if the end of a transaction raises the epoch with this `transaction.version` (KIP-890)."""
    return version >= _BUMPS_EPOCH


def is_exhausted(producer_epoch: int) -> bool:
    """Return True if clients cannot get a higher epoch: the largest is reserved for fencing."""
    return producer_epoch >= MAX_EPOCH - 1


class TransactionRecord(NamedTuple):
    """The durable state of a transactional id; Kafka's `TransactionLogValue`.

    `previous_producer_id` and `last_producer_epoch` distinguish a retry from a fenced producer (KIP-360, KIP-890).
    `next_producer_id` replaces `producer_id` when the transaction is complete, if the epochs are exhausted. `start_ms`
    is -1 if no transaction was open. `client_version` is the `transaction.version` that the client uses.
    """

    producer_id: int
    timeout_ms: int
    update_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    client_version: int = 0


TRANSACTION_BYTES: Final = 4096
"""Approximate size of a transactional id with `FREE_PARTITIONS`."""
FREE_PARTITIONS: Final = 16
PARTITION_BYTES: Final = 200


class Transaction:
    """State of one transactional id, as Kafka's `TransactionMetadata`.

                  ┌────────────────────────────────────────────────────┐
                  ▼                                                    │
        EMPTY ──► ONGOING ──► PREPARE_COMMIT ──► COMPLETE_COMMIT ──────┤
          │         │  │                                               │
          │         │  └────► PREPARE_ABORT ───► COMPLETE_ABORT ───────┘
          │         ▼            ▲  ▲
          │    PREPARE_EPOCH_FENCE  │ (nothing was written: KIP-890)
          └─────────────────────────┘
        EMPTY, COMPLETE_COMMIT and COMPLETE_ABORT: to EMPTY for a new epoch, to DEAD when the id expires.

    A transition is prepared, written, and completed when it is durable. Until then it is `pending`, and no other may
    begin. PREPARE_EPOCH_FENCE only occurs as a pending transition: the transaction aborts, with an epoch that its
    producer does not know.

    Threading: all attributes except `transactional_id` belong to the thread that holds `lock`. `record` is replaced as
    a whole, so that it may be read without the lock.
    """

    __slots__ = ("counted_bytes", "has_failed_fence", "lock", "owner", "pending", "record", "transactional_id")

    def __init__(self, transactional_id: str, record: TransactionRecord, owner: str = "") -> None:
        """The transactional id counts towards the share of `owner` in `transactional.id.max.bytes`."""
        self.transactional_id = transactional_id
        self.owner = owner
        self.counted_bytes = 0
        self.record = record
        self.pending: TransactionState | None = None
        self.has_failed_fence = False
        """True if the epoch was raised to fence a producer, but could not be written. The next fence uses this
        epoch.
        """
        self.lock = threading.RLock()

    def bytes_of(self, partitions: int) -> int:
        """Return the approximate size in bytes with this number of partitions."""
        more = max(0, partitions - FREE_PARTITIONS)
        return TRANSACTION_BYTES + text_bytes(self.transactional_id) + PARTITION_BYTES * more

    @property
    def state_bytes(self) -> int:
        """The approximate size in bytes."""
        return self.bytes_of(len(self.record.partitions))

    @property
    def state(self) -> TransactionState:
        """The durable state."""
        return self.record.state

    def check_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Raise KafkaError for a producer other than the current one: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
        record = self.record
        if record.producer_id != producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if record.producer_epoch != producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # Transitions. The caller writes the returned record. `give_up` cancels any transition except `fence`.

    def begin_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> TransactionRecord:
        """Start the next epoch for a producer that starts, or that continues after an error.

        `expected_epoch` is the epoch of a producer that continues (KIP-360). A retry gets the epoch of the response
        that was lost. Raises KafkaError(PRODUCER_FENCED) for any other epoch.
        """
        record = self.record
        if is_exhausted(record.producer_epoch):
            raise IllegalTransitionError(self.transactional_id, record.state, EMPTY, "its epochs are exhausted")
        epoch, last = record.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if expected_epoch == record.producer_epoch or record.producer_epoch == NO_PRODUCER_EPOCH:
                last = record.producer_epoch
            elif expected_epoch == record.last_producer_epoch:
                epoch, last = record.producer_epoch, record.last_producer_epoch
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._prepare(self._new_session(timeout_ms, now_ms, producer_epoch=epoch, last_producer_epoch=last))

    def rotate_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_epoch: bool
    ) -> TransactionRecord:
        """Start epoch 0 of a new producer id, because the epochs of the current one are exhausted."""
        last = self.record.producer_epoch if keeps_epoch else NO_PRODUCER_EPOCH
        return self._prepare(
            self._new_session(timeout_ms, now_ms, producer_epoch=0, last_producer_epoch=last)._replace(
                producer_id=producer_id
            )
        )

    def _new_session(
        self, timeout_ms: int, now_ms: int, *, producer_epoch: int, last_producer_epoch: int
    ) -> TransactionRecord:
        return self.record._replace(
            state=EMPTY,
            timeout_ms=timeout_ms,
            update_ms=now_ms,
            producer_epoch=producer_epoch,
            last_producer_epoch=last_producer_epoch,
            previous_producer_id=self.record.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def add(self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int) -> TransactionRecord:
        """Add partitions. The first ones open the transaction."""
        record = self.record
        return self._prepare(
            record._replace(
                state=ONGOING,
                partitions=record.partitions | partitions,
                start_ms=record.start_ms if record.state is ONGOING else now_ms,
                update_ms=now_ms,
                previous_producer_id=record.producer_id,
                client_version=client_version,
            )
        )

    def fence(self, client_version: int) -> None:
        """Fence the producer of the open transaction with a higher epoch. The caller then calls `end` with
        PREPARE_ABORT.

        If `end` raises the epoch with this `transaction.version`, this method does not.
        """
        record = self.record
        if PREPARE_EPOCH_FENCE not in NEXT_STATES[record.state] or self.pending is not None:
            raise IllegalTransitionError(self.transactional_id, record.state, PREPARE_EPOCH_FENCE, self._waits_for())
        if not bumps_epoch(client_version):
            epoch = record.producer_epoch
            if not self.has_failed_fence and epoch < MAX_EPOCH:
                epoch += 1
            self.record = record._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
        self.pending = PREPARE_EPOCH_FENCE

    def end(
        self, target: TransactionState, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionRecord:
        """Prepare the commit or abort. The epoch rises if the client's `transaction.version` requires it."""
        if self.pending is PREPARE_EPOCH_FENCE and target is PREPARE_ABORT:
            self.pending = None
        record = self.record
        epoch, last = record.producer_epoch, record.last_producer_epoch
        if bumps_epoch(client_version):
            last = epoch
            # The largest epoch has no successor, but an abort is allowed nevertheless.
            if epoch < MAX_EPOCH:
                epoch += 1
        return self._prepare(
            record._replace(
                state=target,
                producer_epoch=epoch,
                last_producer_epoch=last,
                previous_producer_id=record.producer_id,
                next_producer_id=next_producer_id,
                start_ms=record.start_ms if record.state is ONGOING else now_ms,
                update_ms=now_ms,
                client_version=client_version,
            )
        )

    def completion(self, now_ms: int) -> TransactionRecord:
        """Return the record that completes the commit or abort, once all markers are durable."""
        record = self.record
        target = COMPLETED.get(record.state)
        if target is None:
            raise IllegalTransitionError(self.transactional_id, record.state, record.state, "no end is prepared")
        completed = record._replace(
            state=target,
            previous_producer_id=record.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            update_ms=now_ms,
        )
        if bumps_epoch(record.client_version) and record.next_producer_id != NO_PRODUCER_ID:
            completed = completed._replace(producer_id=record.next_producer_id, producer_epoch=0)
        return self._prepare(completed)

    def expire(self) -> None:
        """Prepare the removal of the id."""
        self._prepare(self.record._replace(state=DEAD))

    def _prepare(self, target: TransactionRecord) -> TransactionRecord:
        state = self.record.state
        if self.pending is not None or target.state not in NEXT_STATES[state]:
            raise IllegalTransitionError(self.transactional_id, state, target.state, self._waits_for())
        self.pending = target.state
        return target

    def _waits_for(self) -> str:
        return "" if self.pending is None else f"{self.pending.value} is pending"

    def complete(self, target: TransactionRecord) -> None:
        """Carry out the pending transition, because its record is durable."""
        if self.pending is not target.state:
            raise IllegalTransitionError(self.transactional_id, self.record.state, target.state, "it is not pending")
        self.pending = None
        self.record = target
        if target.state in COMPLETED:
            self.has_failed_fence = False

    def give_up(self) -> None:
        """Cancel the pending transition, because its record could not be written."""
        self.pending = None
