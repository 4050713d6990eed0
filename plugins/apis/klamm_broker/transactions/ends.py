"""The end of a transaction: its records, the decision, the markers, the completion. Each is durable before the next
starts.

Follows Kafka's `TransactionCoordinator.endTransaction` and `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError, clipped
from klamm.runtime import Clock, Scheduler
from klamm.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from klamm_broker.groups.transactional_offsets import TransactionalOffsets
from klamm_broker.transactions.markers import Marker, MissingMarkers, TransactionMarkers
from klamm_broker.transactions.offsets_partition import OFFSETS_TOPIC
from klamm_broker.transactions.state import PREPARE_ABORT, PREPARE_COMMIT, PREPARE_EPOCH_FENCE, PREPARED
from klamm_broker.transactions.transaction import TopicPartition, Transaction, TransactionRecord, bumps_epoch
from klamm_broker.transactions.transaction_registry import TransactionRegistry

log = logging.getLogger("klamm.broker.transactions")

_FIRST_RETRY_MS: Final = 1000
_LAST_RETRY_MS: Final = 30_000


class ProducerIdAndEpoch(NamedTuple):
    """A producer's identity. Both fields are -1 in an error."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER: Final = ProducerIdAndEpoch()
Identified: TypeAlias = Callable[[ErrorCode, ProducerIdAndEpoch], None]


def identity_of(record: TransactionRecord) -> ProducerIdAndEpoch:
    """Return the producer of a record."""
    return ProducerIdAndEpoch(record.producer_id, record.producer_epoch)


class TransactionEnds:
    """The ends of transactions, from the decision to the completion, also after a restart.

    It has no thread. Markers are written on the thread of `TransactionMarkers`; the threads of the log flusher and the
    store confirm them.
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        registry: TransactionRegistry,
        markers: TransactionMarkers,
        offsets: TransactionalOffsets,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._registry = registry
        self._markers = markers
        self._offsets = offsets
        self._closing = False

    def resume(self) -> None:
        """Complete the transactions whose end was decided before the last stop."""
        for transaction in self._registry.all():
            if transaction.state in PREPARED:
                log.info("%s: finishing its %s", clipped(transaction.transactional_id), transaction.state.value)
                self._write_markers(transaction, lambda: None)

    def close(self) -> None:
        """Write the queued markers. Transactions that are still incomplete are completed at the next start."""
        self._closing = True
        self._markers.close()

    def begin(
        self,
        transaction: Transaction,
        *,
        committed: bool,
        client_version: int,
        reply: Identified,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Write the decision, then the markers. The caller holds the lock of the transaction, which is open or being
        fenced.

        `reply` is called once the transaction is complete, or if its markers cannot be written for now. It gets the
        producer's next identity, if the client's version changes it, or NOT_COORDINATOR if the decision cannot be
        written.
        """
        is_fence = transaction.pending is PREPARE_EPOCH_FENCE
        target = PREPARE_COMMIT if committed else PREPARE_ABORT
        record = transaction.end(target, client_version, next_producer_id, self._clock.wall_ms())

        def decide(error: KafkaError | None) -> None:
            with transaction.lock:
                if error is None:
                    self._registry.write(transaction, record, written)
                    return
                transaction.give_up()
            log.warning("%s: its records cannot be synced to disk: %s", clipped(transaction.transactional_id), error)
            written(ErrorCode.NOT_COORDINATOR)

        def written(error: ErrorCode) -> None:
            if error:
                transaction.has_failed_fence = is_fence
                reply(error, NO_PRODUCER)
                return
            identity = NO_PRODUCER
            if bumps_epoch(client_version):
                rotates = record.next_producer_id != NO_PRODUCER_ID
                identity = ProducerIdAndEpoch(record.next_producer_id, 0) if rotates else identity_of(record)
            self._write_markers(transaction, lambda: reply(ErrorCode.NONE, identity))

        if committed:
            # A power cut must not leave a commit without its records.
            self._markers.flush(_data_partitions(record), decide)
        else:
            decide(None)

    def _write_markers(self, transaction: Transaction, then: Callable[[], None]) -> None:
        """Write the markers of a decided transaction and complete it. `then` is called once: on completion, or earlier
        if a marker fails.

        Failed markers are written again after one second, two, four, and finally every 30 seconds. Durable markers are
        not repeated.
        """
        if self._closing:
            then()
            return
        record = transaction.record
        marker = Marker(record.producer_id, record.producer_epoch, record.state is PREPARE_COMMIT)
        missing: MissingMarkers = dict.fromkeys(_data_partitions(record))
        retry_ms = _FIRST_RETRY_MS
        called = False

        def then_once() -> None:
            nonlocal called
            if not called:
                called = True
                then()

        def written(error: KafkaError | None) -> None:
            if error is None:
                self._complete(transaction, then_once, retry)
            else:
                retry()

        def retry() -> None:
            nonlocal retry_ms
            then_once()
            if not self._closing:
                self._scheduler.schedule(retry_ms, write)
                retry_ms = min(2 * retry_ms, _LAST_RETRY_MS)

        def write() -> None:
            if missing:
                self._markers.submit(marker, missing, written)
            else:
                written(None)

        write()

    def _complete(self, transaction: Transaction, then: Callable[[], None], retry: Callable[[], None]) -> None:
        """Write the completion once all markers are durable, with the offsets that the transaction commits or drops."""
        with transaction.lock:
            before = transaction.record
            committed = before.state is PREPARE_COMMIT
            record = transaction.completion(self._clock.wall_ms())

            def written(error: ErrorCode) -> None:
                if error:
                    retry()
                    return
                self._offsets.ended(before.producer_id, committed=committed)
                then()

            statements = self._offsets.statements_of_end(before.producer_id, committed=committed)
            # No sync: the start of the next transaction is synced. After a crash before that, this one completes again.
            self._registry.write(transaction, record, written, statements, sync=False)


def _data_partitions(record: TransactionRecord) -> list[TopicPartition]:
    return [each for each in sorted(record.partitions) if each[0] != OFFSETS_TOPIC]
