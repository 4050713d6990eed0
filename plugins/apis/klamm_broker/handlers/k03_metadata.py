"""Metadata, versions 0 to 13.

Returns the running nodes with the addresses that the listener advertises; the first is the controller. Describes topics
by name, by id (from version 12), or all of them. Follows `KafkaApis.handleTopicMetadataRequest`.

- A name that does not exist: UNKNOWN_TOPIC_OR_PARTITION; an id that does not exist: UNKNOWN_TOPIC_ID. A name that
  cannot exist: INVALID_TOPIC_EXCEPTION.
- If `auto.create.topics.enable` and the request allow it, a name that does not exist is created in the background, and
  found by a later request. Creation counts towards `controller_mutation_rate`; a failure is not reported.
- A partition that no node leads: LEADER_NOT_AVAILABLE.
- A topic id, or no name, before version 12: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm.wire.primitives import ZERO_UUID
from klamm_broker.cluster.view import ClusterView
from klamm_broker.security.authorization import (
    NOT_REQUESTED,
    authorized_operations,
    cluster_operations,
    denied_topics,
    may_cluster,
    may_topic,
    shows,
)
from klamm_broker.services import BrokerServices
from klamm_broker.topics.leadership import NO_LEADER
from klamm_broker.topics.names import INTERNAL_TOPICS, check_topic_name, is_topic_name
from klamm_broker.topics.topic import Partition, Topic

_FIRST_VERSION_WITH_TOPIC_IDS = 12
_PARTITION_BYTES = 26


def topic_metadata(broker: BrokerServices, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe brokers and topics. Raises KafkaError INVALID_REQUEST for a topic id in an early version. Runs on the
    processor's thread, so it must not block.
    """
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version == 0):
        guarded = context.listener.authorizer is not None
        context.expect_answer(broker.topics.partition_count, 0 if guarded else _PARTITION_BYTES)
        visible = [
            _topic(broker, request, context, topic)
            for topic in broker.topics.all()
            if not guarded or shows(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
        return _response(broker, request, context, visible)
    if context.api_version < _FIRST_VERSION_WITH_TOPIC_IDS:
        for each in wanted:
            if each.name is None or each.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids are served from version 12 on")
    ids = list(dict.fromkeys(each.topic_id for each in wanted if each.topic_id != ZERO_UUID))
    if ids:
        known = [topic for topic_id in ids if (topic := broker.topics.by_id(topic_id)) is not None]
        context.expect_answer(sum(len(topic.partitions) for topic in known))
        # As in Kafka, names in a request with topic ids are ignored.
        return _response(broker, request, context, [_by_id(broker, request, context, topic_id) for topic_id in ids])
    names = list(dict.fromkeys(each.name or "" for each in wanted))
    found = [topic for name in names if (topic := broker.topics.get(name)) is not None]
    context.expect_answer(sum(len(topic.partitions) for topic in found))
    denied = denied_topics(context, AclOperation.DESCRIBE, names)
    missing: list[str] = []
    if request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable:
        missing = [name for name in names if broker.topics.get(name) is None and name not in denied]
        if missing and not may_cluster(context, AclOperation.CREATE, log_if_denied=False):
            denied |= denied_topics(context, AclOperation.CREATE, missing)
            missing = [name for name in missing if name not in denied]
    topics = [_by_name(broker, request, context, name, denied) for name in names]
    possible = [name for name in missing if is_topic_name(name)]
    if possible:
        broker.auto_creation.request(possible, context)
    return _response(broker, request, context, topics)


def _response(
    broker: BrokerServices, request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    cluster = broker.cluster
    return MetadataResponse(
        0,
        [MetadataResponseBroker(*node) for node in cluster.endpoints(context.connection.listener)],
        broker.cluster_id,
        cluster.controller_id,
        topics,
        cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED,
    )


def _by_name(
    broker: BrokerServices, request: MetadataRequest, context: RequestContext, name: str, denied: frozenset[str]
) -> MetadataResponseTopic:
    if name in denied:
        # The response must not show the client whether the topic exists.
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    topic = broker.topics.get(name)
    if topic is not None:
        return _topic(broker, request, context, topic)
    try:
        check_topic_name(name)
    except KafkaError as error:
        return _failure(request, context, error.error_code, name)
    return _failure(request, context, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)


def _by_id(
    broker: BrokerServices, request: MetadataRequest, context: RequestContext, topic_id: bytes
) -> MetadataResponseTopic:
    topic = broker.topics.by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not may_topic(context, AclOperation.DESCRIBE, topic.name):
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return _topic(broker, request, context, topic)


def _failure(request: MetadataRequest, context: RequestContext, error: ErrorCode, name: str) -> MetadataResponseTopic:
    # A client that may describe the name gets its authorized operations even if the topic does not exist.
    asked = request.include_topic_authorized_operations
    operations = authorized_operations(context, ResourceType.TOPIC, name) if asked else NOT_REQUESTED
    return MetadataResponseTopic(
        error, name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=operations
    )


def _topic(
    broker: BrokerServices, request: MetadataRequest, context: RequestContext, topic: Topic
) -> MetadataResponseTopic:
    partitions = topic.partitions
    generation = broker.cluster.generation
    prepared_of, prepared_in, prepared = topic.metadata or (None, -1, None)
    if prepared is None or prepared_of is not partitions or prepared_in != generation:
        prepared = MetadataResponseTopic(
            0, topic.name, topic.id, topic.is_internal, _partitions(broker.cluster, partitions)
        )
        topic.metadata = (partitions, generation, prepared)
    if not request.include_topic_authorized_operations:
        return prepared
    operations = authorized_operations(context, ResourceType.TOPIC, topic.name)
    return MetadataResponseTopic(0, topic.name, topic.id, topic.is_internal, prepared.partitions, operations)


def _partitions(cluster: ClusterView, partitions: Sequence[Partition]) -> list[MetadataResponsePartition]:
    # Equal lists are stored once: with many thousand partitions, lists take more memory than anything else here.
    lists: dict[tuple[int, ...], tuple[list[int], list[int], list[int]]] = {}
    described = []
    for partition in partitions:
        leader_id, epoch, replicas = partition.leadership
        found = lists.get(replicas)
        if found is None:
            found = lists[replicas] = cluster.replica_lists(replicas)
        error = ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_LEADER else 0
        described.append(MetadataResponsePartition(error, partition.index, leader_id, epoch, *found))
    return described
