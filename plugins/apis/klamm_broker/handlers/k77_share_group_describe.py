"""ShareGroupDescribe, version 1 (KIP-932): share groups, their members and assignments.

Follows `KafkaApis.handleShareGroupDescribe`. A group that does not exist or is of another kind: GROUP_ID_NOT_FOUND; an
empty id: INVALID_GROUP_ID. Deleted topics are left out. With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: DESCRIBE on each group, and on each topic of an assignment: TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError
from klamm.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from klamm_broker.handlers.group_descriptions import describe_each, require_topics
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.groups import DescribedShareMember
    from klamm_broker.services import BrokerServices


def describe_share_groups(
    broker: BrokerServices, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe share groups, each on its own. Raises KafkaError."""
    require_share_groups(broker)
    groups = describe_each(
        request,
        context,
        describe=lambda group_id: _describe_one(broker, context, group_id),
        failed=lambda code, message, group_id: DescribedGroup(code, message, group_id),
        bytes_of=lambda group: sum(map(_bytes_of, group.members)),
    )
    return ShareGroupDescribeResponse(groups=groups)


def _bytes_of(member: Member) -> int:
    """The most of what it takes in an answer, and not more."""
    assigned = member.assignment.topic_partitions if member.assignment else ()
    return len(member.member_id) + sum(16 + len(each.topic_name) + 4 * len(each.partitions) for each in assigned)


def _describe_one(broker: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    broker.cluster.check_coordinates(group_id)
    described = broker.groups.shares.describe(group_id)
    ids = {topic_id for member in described.members for topic_id in member.assigned}
    require_topics(broker, context, ids)
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=[_member(broker, member) for member in described.members],
    )


def _member(broker: BrokerServices, member: DescribedShareMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(
            [
                TopicPartitions(topic_id, topic.name, sorted(indexes))
                for topic_id, indexes in member.assigned.items()
                if (topic := broker.topics.by_id(topic_id)) is not None
            ]
        ),
    )
