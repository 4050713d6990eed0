"""ConsumerGroupDescribe, versions 0 and 1 (KIP-848): consumer groups, their members, assignments and targets.

Follows `KafkaApis.handleConsumerGroupDescribe`. A group that does not exist or is of another type: GROUP_ID_NOT_FOUND;
an empty id: INVALID_GROUP_ID. From v1 on the response shows which members use the classic protocol. Deleted topics are
left out. If ConsumerGroupHeartbeat is not served: UNSUPPORTED_VERSION.

Authorization: DESCRIBE on each group, and on each topic of an assignment: TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import ConsumerMember
from klamm_broker.handlers.epoch_groups import bytes_of_member, describe_each, named, require_topics
from klamm_broker.handlers.k68_consumer_group_heartbeat import require_protocol
from klamm_broker.services import BrokerServices

_CLASSIC = 0
_CONSUMER = 1


def describe_consumers(
    broker: BrokerServices, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describe consumer groups, each separately. Raises KafkaError. Runs on a request handler's thread."""
    require_protocol(broker)
    groups = describe_each(
        broker,
        request,
        context,
        describe=lambda group_id: _describe_one(broker, context, group_id),
        failed=DescribedGroup,
        bytes_of=lambda group: sum(
            bytes_of_member(each.member_id, each.assignment, each.target_assignment) for each in group.members
        ),
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe_one(broker: BrokerServices, context: RequestContext, group_id: str) -> DescribedGroup:
    described = broker.groups.consumers.describe(group_id)
    members = [_member(broker, member, described.target.get(member.member_id, {})) for member in described.members]
    partitions = [*(member.held for member in described.members), *described.target.values()]
    require_topics(broker, context, {topic for each in partitions for topic in each})
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=members,
    )


def _member(broker: BrokerServices, member: ConsumerMember, target: Partitions) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(broker, member.held),
        target_assignment=_assignment(broker, target),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(broker: BrokerServices, partitions: Partitions) -> Assignment:
    return Assignment([TopicPartitions(*each) for each in named(broker, partitions)])
