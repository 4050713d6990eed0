"""OffsetDelete, version 0.

Deletes committed offsets of topics that no member of the group subscribes to (KIP-496); answered once the deletion is
durable. Follows `KafkaApis.handleOffsetDeleteRequest` and `OffsetMetadataManager.deleteOffsets`: INVALID_GROUP_ID (an
empty id), GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP for the request, GROUP_SUBSCRIBED_TO_TOPIC and
UNKNOWN_TOPIC_OR_PARTITION for a partition.

Authorization: DELETE on the group, READ on each topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from klamm_broker.security.authorization import may_topic, require_group
from klamm_broker.services import BrokerServices


def delete_offsets(broker: BrokerServices, request: OffsetDeleteRequest, context: RequestContext) -> Pending:
    """Delete offsets. Raises KafkaError for the errors of the whole request. Runs on the processor's thread, so it must
    not block.
    """
    require_group(context, AclOperation.DELETE, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    broker.cluster.check_coordinates(request.group_id)
    response = OffsetDeleteResponse()
    partitions: dict[str, list[int]] = {}
    awaited: list[tuple[str, OffsetDeleteResponsePartition]] = []
    for requested in request.topics:
        topic = broker.topics.get(requested.name)
        denied = not may_topic(context, AclOperation.READ, requested.name)
        answered = OffsetDeleteResponseTopic(requested.name)
        response.topics.append(answered)
        for partition in requested.partitions:
            result = OffsetDeleteResponsePartition(partition.partition_index)
            answered.partitions.append(result)
            if denied:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= partition.partition_index < len(topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                awaited.append((requested.name, result))
                partitions.setdefault(requested.name, []).append(partition.partition_index)

    def reply(outcomes: Mapping[str, ErrorCode]) -> None:
        for name, result in awaited:
            result.error_code = outcomes[name]
        context.respond(response)

    broker.groups.offsets.delete(request.group_id, partitions, reply)
    return context.later()
