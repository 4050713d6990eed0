"""Produce, versions 3 to 13.

Each batch is checked by its header and CRC, gets its offset and is appended to the partition's log without
recompression. `acks` 1 and -1 are the same here: there is one replica, and it is the leader. Topic ids (KIP-516) from
version 13. Follows `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords`.

- `acks` other than 0, 1, -1: INVALID_REQUIRED_ACKS for partitions that exist. The answer waits for no other replica:
  `min.insync.replicas` is capped by the number of replicas, as in Kafka.
- `acks=0` has no answer. An error closes the connection, so that the producer requests new metadata.
- A partition that another node leads: NOT_LEADER_OR_FOLLOWER, from version 10 with the leader (KIP-951).
- An internal topic: INVALID_TOPIC_EXCEPTION, unless the client id is `__admin_client`.
- A batch that an idempotent producer sends again is answered with the offset of the first append.
- zstd before version 7: UNSUPPORTED_COMPRESSION_TYPE, as `ProduceRequest.validateRecords` says.
- Authorization: WRITE on the topic, and for transactional batches on the transactional id.
- The disk fails: KAFKA_STORAGE_ERROR for the partition. Later requests try to write again.
- A transactional batch belongs to the open transaction of its producer. An unknown producer id:
  INVALID_PRODUCER_ID_MAPPING; a fenced producer: INVALID_PRODUCER_EPOCH. The transaction must include the partition:
  AddPartitionsToTxn adds it, or from version 12 on (KIP-890) this request. If the partition is missing:
  INVALID_TXN_STATE, from version 11 on TRANSACTION_ABORTABLE. While the transaction ends: NOT_ENOUGH_REPLICAS, from
  version 12 on CONCURRENT_TRANSACTIONS.
- From version 12 on, a new producer in a partition must begin at sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER.
- For the whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch without a transactional id,
  INVALID_PRODUCER_ID_MAPPING for transactional batches of several producers.

Deviation: `transaction.partition.verification.enable` does not exist; partitions are always verified.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from klamm_broker.handlers.produce_appends import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    append_all,
    count_partitions,
)
from klamm_broker.handlers.produce_transactions import (
    TransactionalAppends,
    is_transactional,
    producer_of,
)
from klamm_broker.security.authorization import denial, may_topic, require_transactional_id
from klamm_broker.services import BrokerServices
from klamm_broker.transactions.ends import ProducerIdAndEpoch
from klamm_broker.transactions.transaction import TopicPartition


def produce_records(
    broker: BrokerServices, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending:
    """Append each partition's batch. Raises KafkaError for an error of the whole request. Runs on the processor's
    thread if the request is small, else on a request handler's.
    """
    transaction = None
    count = count_partitions(request.topic_data)
    if request.transactional_id is None:
        # A single batch is checked when it is appended.
        if count > 1 and any(_transactional_batches(request)):
            raise denial(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif any(_transactional_batches(request)):
        require_transactional_id(context, AclOperation.WRITE, request.transactional_id)
        transaction = TransactionalAppends(broker.transactions, request.transactional_id, context.api_version)
        producer, partitions = (
            _producer_and_partitions(broker, request, context) if transaction.adds or count > 1 else (None, ())
        )
        if producer is not None and transaction.adds and -1 <= request.acks <= 1:
            missing = transaction.missing(partitions)
            if missing:
                _append_once_added(broker, request, context, transaction, producer, missing)
                return context.later()
    return append_all(broker, request, context, transaction, count, on_processor=context.on_processor)


def _transactional_batches(request: ProduceRequest) -> Iterator[tuple[TopicProduceData, PartitionProduceData]]:
    return (
        (topic, data) for topic in request.topic_data for data in topic.partition_data if is_transactional(data.records)
    )


def _producer_and_partitions(
    broker: BrokerServices, request: ProduceRequest, context: RequestContext
) -> tuple[ProducerIdAndEpoch | None, Sequence[TopicPartition]]:
    """Return the producer of the transactional batches that may be appended, and their partitions.

    Raises KafkaError(INVALID_PRODUCER_ID_MAPPING) for batches of several producers.
    """
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    producer = None
    partitions = []
    for wanted, data in _transactional_batches(request):
        topic = broker.topics.by_id(wanted.topic_id) if by_id else broker.topics.get(wanted.name)
        if topic is None or topic.partition(data.index) is None:
            continue
        if may_topic(context, AclOperation.WRITE, topic.name):
            of_batch = producer_of(data.records)
            if producer is not None and producer != of_batch:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "there are batches of several producers")
            producer = of_batch
            partitions.append((topic.name, data.index))
    return producer, partitions


def _append_once_added(
    broker: BrokerServices,
    request: ProduceRequest,
    context: RequestContext,
    transaction: TransactionalAppends,
    producer: ProducerIdAndEpoch,
    missing: Collection[TopicPartition],
) -> None:
    """Add partitions to the transaction. Once this is durable, append the batches and answer."""

    def append() -> None:
        count = count_partitions(request.topic_data)
        outcome = append_all(broker, request, context, transaction, count, on_processor=False)
        if outcome is not context.later():
            context.respond(outcome)

    def added() -> None:
        broker.logs.record_checker.submit(append)

    for wanted in request.topic_data:
        for data in wanted.partition_data:
            if data.records is not None:
                # Copied, because the request's bytes are not kept until the response is sent.
                data.records = bytearray(data.records)
    transaction.add(producer, missing, added)
