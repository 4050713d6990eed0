"""Produce, versions 3 to 13.

Each batch is checked by its header and CRC, gets its offset and is appended to the partition's log, in the codec in
which it came. `acks` 1 and -1 are the same here: there is one replica, and it is the leader. Topic ids (KIP-516) from
version 13. Follows `KafkaApis.handleProduceRequest` and `ReplicaManager.appendRecords`.

- `acks` other than 0, 1, -1: INVALID_REQUIRED_ACKS for partitions that exist. More than one replica is never waited
  for: `min.insync.replicas` is capped by the number of replicas, as in Kafka.
- `acks=0` has no answer; an error closes the connection, so that the producer looks for new metadata.
- A partition that another node leads: NOT_LEADER_OR_FOLLOWER, from version 10 with the leader (KIP-951).
- To a topic of Kafka's own: INVALID_TOPIC_EXCEPTION, unless the client id is `__admin_client`.
- Batches of an idempotent producer that were appended before are answered with the offset they have got.
- zstd before version 7: UNSUPPORTED_COMPRESSION_TYPE, as `ProduceRequest.validateRecords` says.
- Authorization: WRITE on the topic, and for transactional batches on the transactional id.
- The disk refuses: KAFKA_STORAGE_ERROR for that partition; later produces are tried again.
- A transactional batch belongs to the open transaction of its producer: INVALID_PRODUCER_ID_MAPPING for an unknown id,
  INVALID_PRODUCER_EPOCH for a producer that is fenced. Its partition takes part by AddPartitionsToTxn, from version 12
  on (KIP-890) by this request itself; otherwise INVALID_TXN_STATE, from version 11 on TRANSACTION_ABORTABLE. While the
  transaction ends: NOT_ENOUGH_REPLICAS, from version 12 on CONCURRENT_TRANSACTIONS.
- From version 12 on a producer that the partition does not know begins at sequence 0: OUT_OF_ORDER_SEQUENCE_NUMBER.
- For the whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch without a transactional id,
  INVALID_PRODUCER_ID_MAPPING for transactional batches of several producers.

Deviation: `transaction.partition.verification.enable` is not there, partitions are always verified.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from klamm import ErrorCode, KafkaError, handles
from klamm.acl import AclOperation
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES, Codec
from klamm.wire.messages import produce
from klamm.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm.wire.records import CODEC_MASK, MAGIC, NotOneBatchError, holds_one_batch
from klamm_broker.handlers.produce_flush import Unflushed, answer_when_flushed
from klamm_broker.handlers.produce_transactions import (
    ATTRIBUTES_LOW_BYTE,
    TRANSACTIONAL,
    TransactionalAppends,
    is_transactional,
    producer_of,
)
from klamm_broker.log.record_check import INLINE_UNPACKED_BYTES, UnpacksToMoreError
from klamm_broker.security.authorization import denial, may_topic, require_transactional_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from klamm import Pending, RequestContext
    from klamm_broker.services import BrokerServices
    from klamm_broker.topics.topic import Partition, Topic
    from klamm_broker.transactions import ProducerIdAndEpoch, TopicPartition

_log = logging.getLogger("klamm.broker.produce")

_FIRST_VERSION_WITH_ZSTD = 7
_MAGIC_POSITION = 16
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITH_LEADERS = 10
_INLINE_MAX_BYTES = 64 * 1024
_ADMIN_CLIENT_ID = "__admin_client"
_NOT_COUNTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that `ReplicaManager.appendRecordsToLocalLog` does not count in FailedProduceRequestsPerSec."""


@handles(produce, versions=range(3, 14), inline_max_bytes=_INLINE_MAX_BYTES)
def produce_records(
    broker: BrokerServices, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending:
    """Append each partition's batch. Raises KafkaError for an error of the whole request."""
    transaction = None
    count = _count_partitions(request.topic_data)
    if request.transactional_id is None:
        # A single batch is looked at where it is appended.
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
    return _append_all(broker, request, context, transaction, count, on_processor=context.on_processor)


def _transactional_batches(request: ProduceRequest) -> Iterator[tuple[TopicProduceData, PartitionProduceData]]:
    return (
        (topic, data) for topic in request.topic_data for data in topic.partition_data if is_transactional(data.records)
    )


def _producer_and_partitions(
    broker: BrokerServices, request: ProduceRequest, context: RequestContext
) -> tuple[ProducerIdAndEpoch | None, Sequence[TopicPartition]]:
    """The producer of the transactional batches that may be appended, and their partitions.

    Raises KafkaError(INVALID_PRODUCER_ID_MAPPING) for batches of several producers.
    """
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
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
    """Add partitions to the transaction, and append and answer once that is durable."""

    def append() -> None:
        count = _count_partitions(request.topic_data)
        outcome = _append_all(broker, request, context, transaction, count, on_processor=False)
        if outcome is not context.later():
            context.respond(outcome)

    def added() -> None:
        broker.logs.record_checker.submit(append)

    for wanted in request.topic_data:
        for data in wanted.partition_data:
            if data.records is not None:
                # Copied: the bytes of the request are not kept until the response is sent.
                data.records = bytearray(data.records)
    transaction.add(producer, missing, added)


def _append_all(
    broker: BrokerServices,
    request: ProduceRequest,
    context: RequestContext,
    transaction: TransactionalAppends | None,
    count: int,
    *,
    on_processor: bool,
) -> ProduceResponse | Pending:
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    guarded = context.listener.authorizer is not None
    node_id = broker.cluster.node_id
    has_valid_acks = -1 <= request.acks <= 1
    topics = request.topic_data
    work = _Work(broker, context, request.acks, count, transaction, on_processor=on_processor)
    for wanted in topics:
        topic = broker.topics.by_id(wanted.topic_id) if by_id else broker.topics.get(wanted.name)
        name = wanted.name if not by_id else topic.name if topic is not None else None
        denied = guarded and name is not None and not may_topic(context, AclOperation.WRITE, name)
        results: list[PartitionProduceResponse] = []
        for data in wanted.partition_data:
            try:
                if denied:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = topic.partition(data.index) if topic is not None else None
                if topic is None or partition is None:
                    raise _unknown(topic, by_id)
                records = data.records
                if records is None or (len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE]):
                    _check_batch(records, context.api_version, request.transactional_id)
                if not has_valid_acks:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                topic.traffic.produce_requests += 1
                if topic.is_internal and context.client_id != _ADMIN_CLIENT_ID:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic: clients cannot write to it"
                    )
                if partition.leadership.leader_id != node_id:
                    result = work.failed = work.led_elsewhere(partition)
                else:
                    result = work.append(partition, records)
            except KafkaError as error:
                result = work.failed = _failure(data.index, error)
            except UnpacksToMoreError:
                assert topic is not None
                assert partition is not None
                if on_processor and not (results or work.responses):
                    # The first batch: the request has changed nothing yet, but this count.
                    topic.traffic.produce_requests -= 1
                    context.leave_processor()
                # Copied: the bytes of the request are not kept until the response is sent.
                work.deferred.append((results, len(results), partition, bytearray(records)))
                result = PartitionProduceResponse(data.index)
            results.append(result)
        work.responses.append(TopicProduceResponse(wanted.name, wanted.topic_id, results))
    if not work.deferred:
        return work.outcome()
    work.wake_fetches()
    broker.logs.record_checker.submit(work.finish)
    return context.later()


def _count_partitions(topics: Sequence[TopicProduceData]) -> int:
    if len(topics) == 1:
        # Of most requests; without a generator.
        return len(topics[0].partition_data)
    return sum(len(topic.partition_data) for topic in topics)


class _Work:
    """One request while it is carried out: what was appended, what has failed, what is still to be appended."""

    __slots__ = (
        "_acks",
        "_appended",
        "_broker",
        "_context",
        "_leader_ids",
        "_max_packed_bytes",
        "_max_unpacked_bytes",
        "_now_ms",
        "_transaction",
        "_unflushed",
        "deferred",
        "failed",
        "responses",
    )

    def __init__(
        self,
        broker: BrokerServices,
        context: RequestContext,
        acks: int,
        partitions: int,
        transaction: TransactionalAppends | None,
        *,
        on_processor: bool,
    ) -> None:
        self._broker = broker
        self._transaction = transaction
        self._context = context
        self._acks = acks
        self._now_ms = broker.clock.wall_ms()
        self._max_unpacked_bytes = self._max_packed_bytes = MAX_UNCOMPRESSED_BYTES
        if on_processor:
            self._max_unpacked_bytes = _INLINE_MAX_BYTES
            self._max_packed_bytes = INLINE_UNPACKED_BYTES // (partitions or 1)
        self._appended: list[Partition] = []
        self._unflushed: list[Unflushed] = []
        self._leader_ids: set[int] = set()
        self.responses: list[TopicProduceResponse] = []
        self.failed: PartitionProduceResponse | None = None
        self.deferred: list[tuple[list[PartitionProduceResponse], int, Partition, bytearray]] = []
        """Batches to be appended by `finish`, and the places of their results."""

    def append(self, partition: Partition, records: Any) -> PartitionProduceResponse:
        """Append to one partition. Raises KafkaError, UnpacksToMoreError."""
        if self._transaction is not None and is_transactional(records):
            return self._transaction.append(partition, records, self._append)
        return self._append(partition, records)

    def _append(self, partition: Partition, records: Any) -> PartitionProduceResponse:
        traffic = partition.topic.traffic
        is_packed = len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
        max_bytes = self._max_packed_bytes if is_packed else self._max_unpacked_bytes
        try:
            if self._transaction is not None:
                self._transaction.check_start(partition, records)
            result = partition.append(records, now_ms=self._now_ms, max_unpacked_bytes=max_bytes)
        except KafkaError as error:
            if error.error_code in _NOT_COUNTED or isinstance(error, NotOneBatchError):
                raise
            traffic.failed_produce_requests += 1
            failed = self.failed = _failure(partition.index, error)
            failed.log_start_offset = partition.log.log_start_offset
            return failed
        except UnpacksToMoreError:
            raise
        except Exception as error:
            # Not raised further: the appends to other partitions must be answered, and complete waiting fetches.
            traffic.failed_produce_requests += 1
            _log.exception("append to %r failed", partition)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        self._appended.append(partition)
        traffic.bytes_in += len(records)
        traffic.messages_in += result.last_offset - result.base_offset + 1
        answer = PartitionProduceResponse(
            partition.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
        if result.flush_due:
            self._unflushed.append(Unflushed(partition.log, result.last_offset + 1, answer))
        return answer

    def led_elsewhere(self, partition: Partition) -> PartitionProduceResponse:
        """Refuse a partition that another node leads, or none; name the leader (KIP-951)."""
        leader_id, epoch, _replicas = partition.leadership
        refused = PartitionProduceResponse(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        if self._context.api_version >= _FIRST_VERSION_WITH_LEADERS:
            refused.current_leader = LeaderIdAndEpoch(leader_id, epoch)
            self._leader_ids.add(leader_id)
        return refused

    def wake_fetches(self) -> None:
        """Complete the fetches that wait for what was appended."""
        for partition in self._appended:
            partition.wake_fetches()
        self._appended = []

    def finish(self) -> None:
        """Append what was deferred, and answer."""
        self._max_unpacked_bytes = self._max_packed_bytes = MAX_UNCOMPRESSED_BYTES
        for results, place, partition, records in self.deferred:
            try:
                results[place] = self.append(partition, records)
            except KafkaError as error:
                results[place] = self.failed = _failure(partition.index, error)
        outcome = self.outcome()
        if outcome is not self._context.later():
            self._context.respond(outcome)

    def outcome(self) -> ProduceResponse | Pending:
        """What the handler returns once all is appended."""
        self.wake_fetches()
        if self._acks != 0:
            response = ProduceResponse(self.responses)
            if self._leader_ids:
                nodes = self._broker.cluster.endpoints_of(self._leader_ids, self._context.listener)
                response.node_endpoints = [NodeEndpoint(*node) for node in nodes]
            if not self._unflushed:
                return response
            answer_when_flushed(self._broker.logs.flusher, self._context, response, self._unflushed)
            return self._context.later()
        for each in self._unflushed:
            self._broker.logs.flusher.request(each.log, each.end_offset)
        if self.failed is not None:
            self._context.close_connection(f"produce with acks=0 failed: {ErrorCode(self.failed.error_code).name}")
            return self._context.later()
        return self._context.no_response()


def _check_batch(records: Any, version: int, transactional_id: str | None) -> None:
    """Refuse what no log takes, before it counts as an append; for batches with attributes. Raises KafkaError."""
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there are no records")
    if records[_MAGIC_POSITION] != MAGIC:
        # Older messages have no attributes there. The log refuses them.
        return
    attributes = records[ATTRIBUTES_LOW_BYTE]
    if attributes & TRANSACTIONAL and transactional_id is None:
        raise denial(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if version < _FIRST_VERSION_WITH_ZSTD and attributes & CODEC_MASK == Codec.ZSTD and holds_one_batch(records):
        # What is not one batch has the error of that, whatever its codec.
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is served from Produce version 7 on")


def _unknown(topic: Topic | None, by_id: bool) -> KafkaError:
    if topic is None and by_id:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _failure(index: int, error: KafkaError) -> PartitionProduceResponse:
    record_errors = [BatchIndexAndErrorMessage(*each) for each in getattr(error, "record_errors", ())]
    return PartitionProduceResponse(
        index, error.error_code, -1, record_errors=record_errors, error_message=error.message
    )
