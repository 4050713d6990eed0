"""DescribeShareGroupOffsets, versions 0 and 1 (KIP-932, lag in v1 by KIP-1226).

Describes the positions of share groups in partitions: the start offset, before which all records are done, and the
number of later records. A request without topics returns all partitions that the group reads. A partition that the
group has not read, or that does not exist, has the offset -1. Follows
`GroupCoordinatorService.describeShareGroupOffsets`. With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: DESCRIBE on each group and topic.
"""

from __future__ import annotations

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from klamm.wire.primitives import ZERO_UUID
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups
from klamm_broker.security.authorization import denied_topics, may_group
from klamm_broker.services import BrokerServices
from klamm_broker.share.administration import describe, topics_of

_OFFSET_BYTES = 16


def describe_share_offsets(
    broker: BrokerServices, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Describe offsets, group by group. Raises KafkaError. Runs on a request handler's thread."""
    require_share_groups(broker)
    groups = []
    offsets = 0
    for wanted in request.groups:
        group = _group(broker, context, wanted)
        offsets += sum(len(topic.partitions) for topic in group.topics)
        context.check_answer_bytes(offsets * _OFFSET_BYTES)
        groups.append(group)
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _group(
    broker: BrokerServices, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = group.group_id
    if not may_group(context, AclOperation.DESCRIBE, group_id):
        return DescribeShareGroupOffsetsResponseGroup(
            group_id,
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
            error_message="Group authorization failed.",
        )
    if not broker.cluster.coordinates(group_id):
        return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=ErrorCode.NOT_COORDINATOR)
    named = group.topics is not None
    wanted = (
        {topic.topic_name: list(topic.partitions) for topic in group.topics}
        if group.topics is not None
        else topics_of(broker, group_id)
    )
    denied = denied_topics(context, AclOperation.DESCRIBE, wanted)
    return DescribeShareGroupOffsetsResponseGroup(
        group_id,
        [
            _topic(broker, context, group_id, name, indexes, is_denied=name in denied)
            for name, indexes in wanted.items()
            if named or name not in denied
        ],
    )


def _topic(
    broker: BrokerServices, context: RequestContext, group_id: str, name: str, indexes: list[int], *, is_denied: bool
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = None if is_denied else broker.topics.get(name)
    answered = DescribeShareGroupOffsetsResponseTopic(name, topic.id if topic is not None else ZERO_UUID)
    for index in indexes:
        partition = DescribeShareGroupOffsetsResponsePartition(index)
        answered.partitions.append(partition)
        if is_denied:
            partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partition.error_message = "Topic authorization failed."
            continue
        found = describe(broker, group_id, topic, index)
        partition.start_offset = found.start_offset
        if context.api_version >= 1:
            partition.lag = found.lag
    return answered
