"""AlterShareGroupOffsets, version 0 (KIP-932).

Lets a share group begin at other offsets; acknowledgements of later records are forgotten. A group that does not exist
is created if one of the topics exists. Answered once the change is durable. Follows
`GroupMetadataManager.alterShareGroupOffsets`.

- An empty group id: INVALID_GROUP_ID.
- A group with members: NON_EMPTY_GROUP; a group of another type: GROUP_ID_NOT_FOUND.
- A partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION; an offset below 0: INVALID_REQUEST; a partition that is
  new to a group without room for it: GROUP_MAX_SIZE_REACHED.
- With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: READ on the group and on each topic.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from klamm.wire.primitives import ZERO_UUID
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import denied_topics, require_group
from klamm_broker.services import BrokerServices
from klamm_broker.share.administration import alter, share_group_to_alter
from klamm_broker.topics.topic import Partition


def alter_share_offsets(
    broker: BrokerServices, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Alter offsets, partition by partition. Raises KafkaError for errors of the whole request. Runs on a request
    handler's thread.
    """
    require_share_groups(broker)
    require_group(context, AclOperation.READ, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    broker.cluster.check_coordinates(request.group_id)
    denied = denied_topics(context, AclOperation.READ, (topic.topic_name for topic in request.topics))
    names = (topic.topic_name for topic in request.topics if topic.topic_name not in denied)
    group = share_group_to_alter(
        broker, request.group_id, owner_of(context) if any(map(broker.topics.get, names)) else None
    )
    response = AlterShareGroupOffsetsResponse()
    offsets: dict[Partition, int] = {}
    results: dict[Partition, list[AlterShareGroupOffsetsResponsePartition]] = {}
    for requested in request.topics:
        is_denied = requested.topic_name in denied
        topic = None if is_denied else broker.topics.get(requested.topic_name)
        topic_id = topic.id if topic is not None else ZERO_UUID
        answered = AlterShareGroupOffsetsResponseTopic(requested.topic_name, topic_id)
        response.responses.append(answered)
        for each in requested.partitions:
            result = AlterShareGroupOffsetsResponsePartition(each.partition_index)
            answered.partitions.append(result)
            partition = topic.partition(each.partition_index) if topic is not None else None
            if is_denied:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.error_message = "Topic authorization failed."
            elif partition is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = "This server does not host this topic-partition."
            elif each.start_offset < 0:
                result.error_code = ErrorCode.INVALID_REQUEST
            else:
                offsets[partition] = each.start_offset
                results.setdefault(partition, []).append(result)
    if group is not None:
        for partition, error in alter(broker, group, offsets, owner_of(context)).items():
            for result in results[partition]:
                result.error_code, result.error_message = error.error_code, error.message
    return response
