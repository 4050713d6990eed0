"""DescribeTopicPartitions, version 0 (KIP-966).

Describes topics in the order of their names, with a limited number of partitions per response and a cursor for the
rest; no names means all topics. Follows `DescribeTopicPartitionsRequestHandler`.

- The limit is the smaller of the request's and `max.request.partition.size.limit`, at least 1.
- No such name: UNKNOWN_TOPIC_OR_PARTITION; an invalid topic name: INVALID_TOPIC_EXCEPTION.
- A cursor with a negative partition, or at a topic that the request does not name: INVALID_REQUEST for each topic.

Authorization: DESCRIBE on each topic; a request for all topics leaves out those without this permission.
"""

from __future__ import annotations

from heapq import merge
from typing import Final

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from klamm_broker.cluster.view import ClusterView
from klamm_broker.security.authorization import NOT_REQUESTED, authorized_operations, denied_topics, shows
from klamm_broker.services import BrokerServices
from klamm_broker.topics.leadership import NO_LEADER
from klamm_broker.topics.names import check_topic_name
from klamm_broker.topics.topic import Partition

_SORTED_AT_ONCE: Final = 2_000


def topic_partitions(
    broker: BrokerServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Describe partitions, beginning at the cursor. Runs on the processor's thread, so it must not block."""
    cursor = request.cursor
    named = {topic.name for topic in request.topics}
    every = not named
    if cursor is not None and (cursor.partition_index < 0 or not (every or cursor.topic_name in named)):
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name) for name in sorted(named)]
        )
    if every:
        context.expect_answer(broker.topics.partition_count)
        names = [
            topic.name
            for topic in broker.topics.all()
            if shows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        denied: frozenset[str] = frozenset()
    else:
        names = list(named)
        found = [topic for name in names if (topic := broker.topics.get(name)) is not None]
        context.expect_answer(sum(len(topic.partitions) for topic in found))
        denied = denied_topics(context, AclOperation.DESCRIBE, names)
    names = _in_order([name for name in names if name not in denied])
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        # If the cursor's topic was deleted meanwhile, the response starts with the next topic.
        first = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    remaining = max(1, min(request.response_partition_limit, broker.settings.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if remaining == 0:
            response.next_cursor = ResponseCursor(name, 0)
            break
        described = _describe(broker, context, name, first, remaining)
        topic = broker.topics.get(name)
        if topic is not None or not every:
            response.topics.append(described)
        remaining -= len(described.partitions)
        end = first + len(described.partitions)
        if topic is not None and end < len(topic.partitions):
            response.next_cursor = ResponseCursor(name, end)
            break
        first = 0
    response.topics += [
        DescribeTopicPartitionsResponseTopic(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_authorized_operations=NOT_REQUESTED
        )
        for name in sorted(denied)
    ]
    return response


def _in_order(names: list[str]) -> list[str]:
    """Return the names in order. They are sorted in pieces, because no other thread runs during a call of `sort`."""
    pieces = [sorted(names[first : first + _SORTED_AT_ONCE]) for first in range(0, len(names), _SORTED_AT_ONCE)]
    return list(merge(*pieces))


def _describe(
    broker: BrokerServices, context: RequestContext, name: str, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    operations = authorized_operations(context, ResourceType.TOPIC, name)
    topic = broker.topics.get(name)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_topic_name(name)
        except KafkaError as invalid:
            error = invalid.error_code
        return DescribeTopicPartitionsResponseTopic(error, name, topic_authorized_operations=operations)
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.id,
        topic.is_internal,
        [_described(broker.cluster, partition) for partition in topic.partitions[first : first + limit]],
        operations,
    )


def _described(cluster: ClusterView, partition: Partition) -> DescribeTopicPartitionsResponsePartition:
    leader_id, epoch, replica_ids = partition.leadership
    replicas, in_sync, offline = cluster.replica_lists(replica_ids)
    error = ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_LEADER else 0
    return DescribeTopicPartitionsResponsePartition(
        error, partition.index, leader_id, epoch, replicas, in_sync, [], [], offline
    )
