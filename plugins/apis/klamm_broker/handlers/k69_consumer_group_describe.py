"""ConsumerGroupDescribe, versions 0 and 1 (KIP-848): consumer groups, their members, assignments and targets.

Follows `KafkaApis.handleConsumerGroupDescribe`. A group that does not exist or is of another kind: GROUP_ID_NOT_FOUND;
an empty id: INVALID_GROUP_ID. From v1 on it says which members speak the classic protocol. Deleted topics are left
out. Where ConsumerGroupHeartbeat is not served: UNSUPPORTED_VERSION.

Authorization: DESCRIBE on each group, and on each topic of an assignment: TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError
from klamm.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from klamm_broker.handlers.group_descriptions import describe_each, require_topics
from klamm_broker.handlers.k68_consumer_group_heartbeat import require_protocol

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.groups import DescribedConsumer
    from klamm_broker.groups.assignors import Partitions
    from klamm_broker.services import BrokerServices

_CLASSIC = 0
_CONSUMER = 1


def describe_consumers(
    broker: BrokerServices, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups, each on its own. Raises KafkaError."""
    require_protocol(broker)
    groups = describe_each(
        request,
        context,
        describe=lambda group_id: _describe_one(broker, context, group_id),
        failed=lambda code, message, group_id: DescribedGroup(code, message, group_id),
        bytes_of=lambda group: sum(map(_bytes_of, group.members)),
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _bytes_of(member: Member) -> int:
    """The most of what it takes in an answer, and not more."""
    assigned = [each for one in (member.assignment, member.target_assignment) if one for each in one.topic_partitions]
    return len(member.member_id) + sum(16 + len(each.topic_name) + 4 * len(each.partitions) for each in assigned)


def _describe_one(broker: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    broker.cluster.check_coordinates(group_id)
    described = broker.groups.consumers.describe(group_id)
    members = [_member(broker, member) for member in described.members]
    ids = {topic for member in described.members for each in (member.assigned, member.target) for topic in each}
    require_topics(broker, context, ids)
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=members,
    )


def _member(broker: BrokerServices, member: DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(broker, member.assigned),
        target_assignment=_assignment(broker, member.target),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(broker: BrokerServices, partitions: Partitions) -> Assignment:
    return Assignment(
        [
            TopicPartitions(topic_id, topic.name, sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (topic := broker.topics.by_id(topic_id)) is not None
        ]
    )
