"""Produce of transactional batches: each batch joins the open transaction of its producer (KIP-98, KIP-890).

Follows `ReplicaManager.handleProduceAppend` and `AddPartitionsToTxnManager`. A batch is appended while its transaction
is locked, so that no batch follows the marker that ends the transaction. klamm verifies the producer of each batch.
Kafka verifies the producer of the first batch in a transaction only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import Struct
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.wire.messages.produce import PartitionProduceResponse
from klamm.wire.records import holds_one_batch
from klamm_broker.topics.topic import Partition
from klamm_broker.transactions.coordinator import TransactionCoordinator
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from klamm_broker.transactions.transaction import TopicPartition

ATTRIBUTES_LOW_BYTE: Final = 22
TRANSACTIONAL: Final = 0x10
_PRODUCER: Final = Struct(">qh")
_PRODUCER_OFFSET: Final = 43
_SEQUENCE: Final = Struct(">i")
_SEQUENCE_OFFSET: Final = 53
_FIRST_VERSION_WITH_ABORTABLE: Final = 11
_FIRST_VERSION_THAT_ADDS: Final = 12
_CLIENT_VERSION: Final = 2


def is_transactional(records: Any) -> bool:
    """Return True if the records are one batch that is part of a transaction; False also for records that no log
    accepts.
    """
    return records is not None and holds_one_batch(records) and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL != 0


def producer_of(records: Any) -> ProducerIdAndEpoch:
    """Return the producer of a batch for which `is_transactional` returned True."""
    return ProducerIdAndEpoch(*_PRODUCER.unpack_from(records, _PRODUCER_OFFSET))


class TransactionalAppends:
    """The transactional batches of one request."""

    __slots__ = ("_coordinator", "_not_added", "_refusal", "_transactional_id", "_version")

    def __init__(self, coordinator: TransactionCoordinator, transactional_id: str, version: int) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._version = version
        self._not_added: Collection[TopicPartition] = ()
        self._refusal = ErrorCode.NONE

    @property
    def adds(self) -> bool:
        """Return True if the request adds its partitions to the transaction (v12)."""
        return self._version >= _FIRST_VERSION_THAT_ADDS

    def missing(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return the partitions that are not part of the open transaction."""
        return self._coordinator.missing(self._transactional_id, partitions)

    def add(
        self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], then: Callable[[], None]
    ) -> None:
        """Add partitions to the transaction and call `then`. `append` refuses the partitions that cannot be added."""

        def added(error: ErrorCode) -> None:
            if error:
                self._not_added, self._refusal = frozenset(partitions), error
            then()

        self._coordinator.add_partitions(self._transactional_id, producer, partitions, _CLIENT_VERSION, added)

    def check_start(self, partition: Partition, records: Any) -> None:
        """Check that a producer's first batch in a partition has sequence 0 (v12, KIP-890).

        Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if not self.adds or not is_transactional(records):
            return
        (sequence,) = _SEQUENCE.unpack_from(records, _SEQUENCE_OFFSET)
        producer_id = producer_of(records).producer_id
        if sequence and not partition.log.knows_producer(producer_id):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} must begin at sequence 0, but the batch starts at {sequence}.",
            )

    def append(
        self, partition: Partition, records: Any, append: Callable[[Partition, Any], PartitionProduceResponse]
    ) -> PartitionProduceResponse:
        """Append a batch if its partition is part of the open transaction of its producer.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE (from v11 on
        TRANSACTION_ABORTABLE), NOT_ENOUGH_REPLICAS (from v12 on CONCURRENT_TRANSACTIONS), and the errors of `append`.
        """
        topic_partition = (partition.topic.name, partition.index)
        try:
            if topic_partition in self._not_added:
                raise KafkaError(self._refusal)
            return self._coordinator.within(
                self._transactional_id, producer_of(records), topic_partition, lambda: append(partition, records)
            )
        except KafkaError as error:
            raise self._translated(error) from error

    def _translated(self, error: KafkaError) -> KafkaError:
        """Return the error in a form that a producer of this version understands."""
        code = error.error_code
        if code == ErrorCode.PRODUCER_FENCED:
            return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has taken over")
        if code == ErrorCode.TRANSACTION_ABORTABLE and self._version < _FIRST_VERSION_WITH_ABORTABLE:
            return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
        if code == ErrorCode.CONCURRENT_TRANSACTIONS and not self.adds:
            # As in Kafka, because older clients retry after this error without a Metadata request.
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction is ending")
        if code == ErrorCode.NOT_COORDINATOR:
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the partition cannot be added to the transaction")
        return error
