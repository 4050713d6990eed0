"""The work of Produce for each partition: check the batch, append it, and answer; see `k00_produce`.

This module has no handler's decorator, so that it can be compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.compression import MAX_UNCOMPRESSED_BYTES, Codec
from klamm.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm.wire.records import CODEC_MASK, LOG_OVERHEAD_BYTES, MAGIC, NotOneBatchError, holds_one_batch
from klamm_broker.handlers.produce_flush import Unflushed, answer_when_flushed
from klamm_broker.handlers.produce_transactions import (
    ATTRIBUTES_LOW_BYTE,
    TRANSACTIONAL,
    TransactionalAppends,
    is_transactional,
)
from klamm_broker.log.record_check import INLINE_UNPACKED_BYTES, UnpacksToMoreError
from klamm_broker.security.authorization import denial, may_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic import Partition, Topic

_log = logging.getLogger("klamm.broker.produce")

FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
INLINE_MAX_BYTES: Final = 64 * 1024
_FIRST_VERSION_WITH_ZSTD: Final = 7
_FIRST_VERSION_WITH_LEADERS: Final = 10
_MAGIC_POSITION: Final = 16
_ADMIN_CLIENT_ID: Final = "__admin_client"
_NOT_COUNTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that `ReplicaManager.appendRecordsToLocalLog` does not count in FailedProduceRequestsPerSec."""


def append_all(
    broker: BrokerServices,
    request: ProduceRequest,
    context: RequestContext,
    transaction: TransactionalAppends | None,
    count: int,
    *,
    on_processor: bool,
) -> ProduceResponse | Pending:
    """Append each of the `count` batches of a request. Return the handler's result.

    On a processor's thread, raises NotInlineError before any append if the first batch unpacks to too many bytes.
    """
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    guarded = context.listener.authorizer is not None
    node_id = broker.cluster.node_id
    work = _Work(broker, context, request.acks, count, transaction, on_processor=on_processor)
    for wanted in request.topic_data:
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
                if not -1 <= request.acks <= 1:
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
                    # This is the first batch, so the request has changed only this count so far.
                    topic.traffic.produce_requests -= 1
                    context.leave_processor()
                result = work.defer(results, partition, records)
            results.append(result)
        work.responses.append(TopicProduceResponse(wanted.name, wanted.topic_id, results))
    if not work.deferred:
        return work.outcome()
    work.wake_fetches()
    broker.logs.record_checker.submit(work.finish)
    return context.later()


def count_partitions(topics: Sequence[TopicProduceData]) -> int:
    if len(topics) == 1:
        # Most requests have one topic with one partition. They need no generator.
        return len(topics[0].partition_data)
    return sum(len(topic.partition_data) for topic in topics)


class _Work:
    """The state of one request: results of appended batches, errors, and batches still to be appended."""

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
            self._max_unpacked_bytes = INLINE_MAX_BYTES
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
        except Exception as unexpected:
            # An error of this partition alone: the appends to others must be answered and must complete waiting
            # fetches.
            traffic.failed_produce_requests += 1
            _log.exception("append to %r failed", partition)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from unexpected
        self._appended.append(partition)
        traffic.bytes_in += len(records)
        traffic.messages_in += result.last_offset - result.base_offset + 1
        answer = PartitionProduceResponse(
            partition.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
        if result.flush_due:
            self._unflushed.append(Unflushed(partition.log, result.last_offset + 1, answer))
        return answer

    def defer(
        self, results: list[PartitionProduceResponse], partition: Partition, records: Any
    ) -> PartitionProduceResponse:
        """Leave a batch to `finish`. Return a placeholder for its result."""
        # Copied, because the request's bytes are not kept until the response is sent.
        self.deferred.append((results, len(results), partition, bytearray(records)))
        return PartitionProduceResponse(partition.index)

    def led_elsewhere(self, partition: Partition) -> PartitionProduceResponse:
        """Return the error for a partition that another node leads, with the leader's id and epoch (KIP-951)."""
        leader_id, epoch, _replicas = partition.leadership
        refused = PartitionProduceResponse(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        if self._context.api_version >= _FIRST_VERSION_WITH_LEADERS:
            refused.current_leader = LeaderIdAndEpoch(leader_id, epoch)
            self._leader_ids.add(leader_id)
        return refused

    def wake_fetches(self) -> None:
        """Complete the fetches that wait for the appended records."""
        for partition in self._appended:
            partition.wake_fetches()
        self._appended = []

    def finish(self) -> None:
        """Append the deferred batches, and answer."""
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
        """Return the handler's result when all batches are appended."""
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
    """Check a batch before it counts as an append. Raises KafkaError for one that no log accepts."""
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there are no records")
    if records[_MAGIC_POSITION] != MAGIC:
        # Older messages have no attributes at this position. The log refuses them.
        return
    attributes = records[ATTRIBUTES_LOW_BYTE]
    if attributes & TRANSACTIONAL and transactional_id is None:
        raise denial(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if version < _FIRST_VERSION_WITH_ZSTD and attributes & CODEC_MASK == Codec.ZSTD and _begins_with_a_batch(records):
        # As in Kafka, the error for a truncated batch comes first, and the error for a second batch later.
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is served from Produce version 7 on")


def _begins_with_a_batch(records: Any) -> bool:
    """Return True if the first batch is complete. The bytes after it do not matter."""
    size_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(records[8:LOG_OVERHEAD_BYTES], "big", signed=True)
    return holds_one_batch(records[:size_bytes])


def _unknown(topic: Topic | None, by_id: bool) -> KafkaError:
    if topic is None and by_id:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _failure(index: int, error: KafkaError) -> PartitionProduceResponse:
    record_errors = [BatchIndexAndErrorMessage(*each) for each in getattr(error, "record_errors", ())]
    return PartitionProduceResponse(
        index, error.error_code, -1, record_errors=record_errors, error_message=error.message
    )
