"""The transaction coordinator: producers' epochs, the partitions of transactions, their ends.

Follows Kafka's `TransactionCoordinator` and `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from klamm import ErrorCode, KafkaError, clipped
from klamm.runtime import Clock, Scheduler
from klamm.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.groups.transactional_offsets import TransactionalOffsets
from klamm_broker.storage.producer_ids import ProducerIds
from klamm_broker.storage.store import StoreError
from klamm_broker.transaction_settings import TransactionSettings
from klamm_broker.transactions.ending import check_end
from klamm_broker.transactions.ends import (
    NO_PRODUCER,
    Identified,
    ProducerIdAndEpoch,
    TransactionEnds,
    identity_of,
)
from klamm_broker.transactions.markers import TransactionMarkers
from klamm_broker.transactions.state import (
    AT_REST,
    DEAD,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
)
from klamm_broker.transactions.transaction import (
    TopicPartition,
    Transaction,
    TransactionRecord,
    bumps_epoch,
    is_exhausted,
)
from klamm_broker.transactions.transaction_registry import TransactionRegistry, Written

log = logging.getLogger("klamm.broker.transactions")

R = TypeVar("R")

_LEAVES_NO_ROOM: Final = frozenset((PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE, DEAD))


class TransactionCoordinator:
    """Coordinates all transactions of this broker.

    It calls the `reply` of a request at once or later, on the caller's thread, the store's, or the log flusher's. A
    call waits only if it needs a new block of producer ids. Life cycle: `load` → `abort_open` after a power failure →
    `resume` → requests → `close`.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        registry: TransactionRegistry,
        settings: TransactionSettings,
        producer_ids: ProducerIds,
        markers: TransactionMarkers,
        offsets: TransactionalOffsets,
        transaction_version: Callable[[], int],
    ) -> None:
        self.registry = registry
        self._clock = clock
        self._settings = settings
        self._producer_ids = producer_ids
        self._transaction_version = transaction_version
        self._ends = TransactionEnds(clock, scheduler, self.registry, markers, offsets)

    def load(self) -> None:
        """Load all transactional ids from the store. Raises StoreError."""
        self.registry.load()

    def abort_open(self) -> None:
        """Abort all open transactions after a power cut, because acknowledged records may be lost. Raises
        StoreError.
        """
        self.registry.abort_open(self._transaction_version(), self._clock.wall_ms())

    def resume(self) -> None:
        """Complete the transactions whose end was decided before the last stop."""
        self._ends.resume()

    def close(self) -> None:
        """Write the queued markers. Transactions that are still incomplete are completed at the next start."""
        self._ends.close()

    # Producers

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        reply: Identified,
        owner: str = "",
    ) -> None:
        """Give the producer of a transactional id its next epoch, and fence earlier ones.

        `expected` is the identity of a producer that continues after an error (KIP-360). A new transactional id counts
        towards the share of `owner`. Error codes for `reply`: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT,
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while another request is in progress or an open transaction is being
        aborted, NOT_COORDINATOR if the change could not be written, POLICY_VIOLATION if there is no room for a new
        transactional id.

        Raises StoreError if no producer id can be allocated.
        """
        if not transactional_id:
            reply(ErrorCode.INVALID_REQUEST, NO_PRODUCER)
            return
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            reply(ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER)
            return
        try:
            transaction = self._get_or_create(transactional_id, timeout_ms, owner)
        except StoreError:
            raise
        except KafkaError as error:
            reply(error.error_code, NO_PRODUCER)
            return
        # Called before the transaction is locked: an allocation waits for the store's thread, which may need the lock.
        spare = self._spare_producer_id(transaction)
        try:
            with transaction.lock:
                _check_may_go_on(transaction, expected)
                if transaction.state is ONGOING:
                    version = self._transaction_version()
                    transaction.fence(version)
                    self._ends.begin(
                        transaction,
                        committed=False,
                        client_version=version,
                        reply=lambda error, _producer: reply(error or ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER),
                    )
                    return
                record = self._next_epoch(transaction, timeout_ms, expected, spare)
                self.registry.write(
                    transaction, record, lambda error: reply(error, identity_of(record) if not error else NO_PRODUCER)
                )
        except KafkaError as error:
            reply(error.error_code, NO_PRODUCER)

    def _get_or_create(self, transactional_id: str, timeout_ms: int, owner: str) -> Transaction:
        transaction = self.registry.get(transactional_id)
        if transaction is not None:
            return transaction
        record = TransactionRecord(self._producer_ids.allocate(), timeout_ms, self._clock.wall_ms())
        return self.registry.add(transactional_id, record, owner)

    def _spare_producer_id(self, transaction: Transaction) -> int:
        """Return a new producer id for a transaction whose epochs are exhausted; NO_PRODUCER_ID for any other."""
        exhausted = is_exhausted(transaction.record.producer_epoch) and transaction.pending is None
        return self._producer_ids.allocate() if exhausted else NO_PRODUCER_ID

    def _next_epoch(
        self, transaction: Transaction, timeout_ms: int, expected: ProducerIdAndEpoch | None, spare: int
    ) -> TransactionRecord:
        now_ms = self._clock.wall_ms()
        epoch = transaction.record.producer_epoch
        if is_exhausted(epoch) and (expected is None or expected.producer_epoch == epoch):
            if spare == NO_PRODUCER_ID:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            return transaction.rotate_producer_id(spare, timeout_ms, now_ms, keeps_epoch=expected is not None)
        return transaction.begin_epoch(timeout_ms, None if expected is None else expected.producer_epoch, now_ms)

    # Partitions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        reply: Written,
    ) -> None:
        """Add partitions to the transaction, and open one if none is open. `reply` is called once the change is
        durable.

        Error codes for `reply`: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        NOT_COORDINATOR.
        """
        try:
            transaction = self.registry.find(transactional_id)
            with transaction.lock:
                transaction.check_producer(*producer)
                if transaction.pending is not None or transaction.state in PREPARED:
                    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
                is_open = transaction.state is ONGOING
                new = frozenset(each for each in partitions if each not in transaction.record.partitions)
                if new or not is_open:
                    self.registry.require_room(transaction, len(new))
                    record = transaction.add(new, client_version, self._clock.wall_ms())
                    if is_open:
                        self.registry.write_added(transaction, record, new, reply)
                    else:
                        self.registry.write(transaction, record, reply)
                    return
        except KafkaError as error:
            reply(error.error_code)
            return
        reply(ErrorCode.NONE)

    def missing(self, transactional_id: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that are not in the open transaction."""
        transaction = self.registry.get(transactional_id)
        record = transaction.record if transaction is not None else None
        if record is None or record.state is not ONGOING:
            return list(partitions)
        return [each for each in partitions if each not in record.partitions]

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return NONE for partitions that are in the transaction, and TRANSACTION_ABORTABLE for all others.

        Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        transaction = self.registry.find(transactional_id)
        with transaction.lock:
            members = _open_partitions(transaction, producer)
            return {each: ErrorCode.NONE if each in members else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def within(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topic_partition: TopicPartition,
        work: Callable[[], R],
    ) -> R:
        """Run `work`, e.g. an append, as part of an open transaction. The transaction cannot end meanwhile.

        Raises KafkaError: the errors of `verify_partitions`, TRANSACTION_ABORTABLE if the partition is not in the
        transaction, and the errors of `work`.
        """
        transaction = self.registry.find(transactional_id)
        with transaction.lock:
            if topic_partition not in _open_partitions(transaction, producer):
                raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)
            return work()

    # Ends

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        reply: Identified,
        *,
        committed: bool,
        client_version: int,
    ) -> None:
        """Commit or abort the transaction. `reply` gets the producer's next identity, if the client's version changes
        it.

        `reply` is called once the transaction is complete, or if its markers cannot be written for now. Error codes for
        it: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS,
        NOT_COORDINATOR. Raises StoreError if no producer id can be allocated.
        """
        raises_epoch = bumps_epoch(client_version)
        try:
            transaction = self.registry.find(transactional_id)
            spare = self._spare_producer_id(transaction) if raises_epoch else NO_PRODUCER_ID
            with transaction.lock:
                if check_end(transaction, *producer, client_version, committed=committed):
                    if raises_epoch and is_exhausted(producer.producer_epoch) and spare == NO_PRODUCER_ID:
                        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
                    self._ends.begin(
                        transaction,
                        committed=committed,
                        client_version=client_version,
                        next_producer_id=spare,
                        reply=reply,
                    )
                    return
                current = identity_of(transaction.record)
        except KafkaError as error:
            reply(error.error_code, NO_PRODUCER)
            return
        reply(ErrorCode.NONE, current if raises_epoch else NO_PRODUCER)

    # Time

    def abort_timed_out(self, now_ms: int) -> None:
        """Abort transactions that have been open for longer than their timeout, and fence their producers."""
        for transaction in self.registry.all():
            record = transaction.record
            if record.state is not ONGOING or record.start_ms + record.timeout_ms >= now_ms:
                continue
            with transaction.lock:
                if transaction.record is record and transaction.pending is None:
                    log.info("%s: open for too long, aborting", clipped(transaction.transactional_id))
                    version = self._transaction_version()
                    transaction.fence(version)
                    self._ends.begin(
                        transaction,
                        committed=False,
                        client_version=version,
                        reply=_ignore,
                    )

    def expire(self, now_ms: int) -> None:
        """Remove transactional ids that have not been used for `transactional.id.expiration.ms`."""
        latest_ms = now_ms - self._settings.transactional_id_expiration_ms
        for transaction in self.registry.all():
            with transaction.lock:
                record = transaction.record
                if transaction.pending is None and record.state in AT_REST and record.update_ms <= latest_ms:
                    transaction.expire()
                    self.registry.remove(transaction)


def _ignore(_error: ErrorCode, _producer: ProducerIdAndEpoch) -> None:
    """Do nothing: no request waits for the end of a transaction that timed out."""


def _check_may_go_on(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> None:
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    record = transaction.record
    if (
        expected is not None
        and record.producer_epoch != NO_PRODUCER_EPOCH
        and expected.producer_id != record.producer_id
        and not (expected.producer_id == record.previous_producer_id and is_exhausted(expected.producer_epoch))
    ):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if record.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _open_partitions(transaction: Transaction, producer: ProducerIdAndEpoch) -> frozenset[TopicPartition]:
    """Return the partitions of the open transaction. The caller holds its lock. Raises KafkaError."""
    transaction.check_producer(*producer)
    if transaction.state in PREPARED or transaction.pending in _LEAVES_NO_ROOM:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction.record.partitions
