"""DeleteShareGroupOffsets, version 0 (KIP-932).

Deletes a share group's positions in topics. The group begins there again at the offset that its config names. Answered
once the deletion is durable. Follows `GroupCoordinatorService.deleteShareGroupOffsets`.

- An empty group id: INVALID_GROUP_ID.
- A group with members: NON_EMPTY_GROUP; a group that does not exist or is of another type: GROUP_ID_NOT_FOUND.
- A topic that does not exist: UNKNOWN_TOPIC_OR_PARTITION.
- With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: DELETE on the group, READ on each topic.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups
from klamm_broker.security.authorization import denied_topics, require_group
from klamm_broker.services import BrokerServices
from klamm_broker.share.administration import require_empty


def delete_share_offsets(
    broker: BrokerServices, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Delete offsets, topic by topic. Raises KafkaError for errors of the whole request. Runs on a request handler's
    thread.
    """
    require_share_groups(broker)
    require_group(context, AclOperation.DELETE, request.group_id)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    broker.cluster.check_coordinates(request.group_id)
    denied = denied_topics(context, AclOperation.READ, (topic.topic_name for topic in request.topics))
    group = require_empty(broker, request.group_id)
    response = DeleteShareGroupOffsetsResponse()
    for requested in request.topics:
        answered = DeleteShareGroupOffsetsResponseTopic(requested.topic_name)
        response.responses.append(answered)
        topic = broker.topics.get(requested.topic_name)
        if requested.topic_name in denied:
            answered.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answered.error_message = "Topic authorization failed."
        elif topic is None:
            answered.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answered.error_message = "This server does not host this topic-partition."
        else:
            answered.topic_id = topic.id
            broker.shares.forget_topic_of(group.group_id, topic.id)
    broker.groups.shares.write_and_wait(group, [])
    return response
