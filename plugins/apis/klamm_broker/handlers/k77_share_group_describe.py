"""ShareGroupDescribe, version 1 (KIP-932): share groups, their members and assignments.

Follows `KafkaApis.handleShareGroupDescribe`. A group that does not exist or is of another type: GROUP_ID_NOT_FOUND; an
empty id: INVALID_GROUP_ID. Deleted topics are left out. With `share.version` 0: UNSUPPORTED_VERSION.

Authorization: DESCRIBE on each group, and on each topic of an assignment: TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from klamm_broker.groups.share.group import ShareMember
from klamm_broker.handlers.epoch_groups import bytes_of_member, describe_each, named, require_topics
from klamm_broker.handlers.k76_share_group_heartbeat import require_share_groups
from klamm_broker.services import BrokerServices


def describe_share_groups(
    broker: BrokerServices, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe share groups, each separately. Raises KafkaError. Runs on a request handler's thread."""
    require_share_groups(broker)
    groups = describe_each(
        broker,
        request,
        context,
        describe=lambda group_id: _describe_one(broker, context, group_id),
        failed=DescribedGroup,
        bytes_of=lambda group: sum(bytes_of_member(each.member_id, each.assignment) for each in group.members),
    )
    return ShareGroupDescribeResponse(groups=groups)


def _describe_one(broker: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
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


def _member(broker: BrokerServices, member: ShareMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=Assignment([TopicPartitions(*each) for each in named(broker, member.assigned)]),
    )
