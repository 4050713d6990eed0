"""DescribeProducers, version 0 (KIP-664): the active idempotent producers of a partition.

Follows `ReplicaManager.activeProducerState`. Nodes with a replica describe the producers; other nodes answer
NOT_LEADER_OR_FOLLOWER. No such partition: UNKNOWN_TOPIC_OR_PARTITION; an invalid topic name: INVALID_TOPIC_EXCEPTION.

Authorization: READ on each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from klamm_broker.cluster.view import ClusterView
from klamm_broker.security.authorization import require_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.names import check_topic_name
from klamm_broker.topics.topic import Topic

_PRODUCER_BYTES = 36


def active_producers(
    broker: BrokerServices, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe the active producers, per partition. Runs on a request handler's thread."""
    topics = []
    producers = 0
    for wanted in request.topics:
        partitions = []
        for partition in _describe_topic(broker, context, wanted.name, wanted.partition_indexes):
            producers += len(partition.active_producers)
            context.check_answer_bytes(producers * _PRODUCER_BYTES)
            partitions.append(partition)
        topics.append(TopicResponse(wanted.name, partitions))
    return DescribeProducersResponse(topics=topics)


def _describe_topic(
    broker: BrokerServices, context: RequestContext, name: str, indexes: Sequence[int]
) -> Iterable[PartitionResponse]:
    try:
        check_topic_name(name)
        require_topic(context, AclOperation.READ, name)
    except KafkaError as error:
        return [PartitionResponse(index, error.error_code, error.message) for index in indexes]
    return (_describe(broker.cluster, broker.topics.get(name), index) for index in indexes)


def _describe(cluster: ClusterView, topic: Topic | None, index: int) -> PartitionResponse:
    partition = topic.partition(index) if topic is not None else None
    if partition is None:
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if cluster.node_id not in partition.leadership.replicas:
        return PartitionResponse(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp_ms,
                each.coordinator_epoch,
                each.current_transaction_first_offset,
            )
            for each in partition.log.active_producers()
        ],
    )
