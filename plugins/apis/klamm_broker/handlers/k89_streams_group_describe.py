"""StreamsGroupDescribe, versions 0 and 1 (KIP-1071): streams groups, their topology, members, tasks and targets.

Follows `KafkaApis.handleStreamsGroupDescribe`. A group that does not exist or is of another type: GROUP_ID_NOT_FOUND;
an empty id: INVALID_GROUP_ID. The answer has the numbers of partitions of internal topics, unless a source topic is
missing or does not fit. If StreamsGroupHeartbeat is not served: UNSUPPORTED_VERSION.

Version 1 has the assignor (KIP-1357), and a field that shows that no description of the topology is stored (KIP-1331).

Authorization: DESCRIBE on each group, and on each topic of its topology: TOPIC_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from klamm_broker.groups.streams.coordinator import DescribedStreamsGroup
from klamm_broker.groups.streams.group import NO_OFFSETS
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks, by_subtopology
from klamm_broker.groups.streams.topology import InternalTopic
from klamm_broker.handlers.epoch_groups import TOPICS_DENIED, describe_each
from klamm_broker.handlers.k88_streams_group_heartbeat import require_streams_groups
from klamm_broker.security.authorization import denied_topics
from klamm_broker.services import BrokerServices

_NOT_REQUESTED = 0
_NOT_STORED = 1


def describe_streams_groups(
    broker: BrokerServices, request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    """Describe streams groups, each separately. Raises KafkaError. Runs on a request handler's thread."""
    require_streams_groups(broker)
    groups = describe_each(
        broker,
        request,
        context,
        describe=lambda group_id: _describe_one(
            broker, context, group_id, wants_description=request.include_topology_description
        ),
        failed=DescribedGroup,
        bytes_of=_bytes_of,
    )
    return StreamsGroupDescribeResponse(groups=groups)


def _bytes_of(group: DescribedGroup) -> int:
    """Return an upper bound of the encoded size of a group."""
    tasks = (
        each
        for member in group.members
        for tasks in (member.assignment, member.target_assignment)
        if tasks is not None
        for role in (tasks.active_tasks, tasks.standby_tasks, tasks.warmup_tasks)
        for each in role
    )
    topology = () if group.topology is None else group.topology.subtopologies or ()
    names = (name for each in topology for name in (*each.source_topics, *each.repartition_sink_topics))
    return (
        sum(len(member.member_id) for member in group.members)
        + sum(len(each.subtopology_id) + 4 * len(each.partitions) for each in tasks)
        + sum(map(len, names))
    )


def _describe_one(
    broker: BrokerServices, context: RequestContext, group_id: str, *, wants_description: bool
) -> DescribedGroup:
    described = broker.groups.streams.describe(group_id)
    group, topology = described.group, described.topology
    if topology is not None and denied_topics(context, AclOperation.DESCRIBE, topology.topic_names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_DENIED)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(described),
        members=[_member(described, member) for member in group.members],
        topology_description_status=_NOT_STORED if wants_description else _NOT_REQUESTED,
        assignor_name=group.assignor,
    )


def _topology(described: DescribedStreamsGroup) -> Topology | None:
    topology, configuration = described.topology, described.configuration
    if topology is None:
        return None
    # The numbers of partitions are known once tasks can run; before that, the application's own numbers are returned.
    sized = configuration.internal_topics if configuration.is_ready else {}
    return Topology(
        topology.epoch,
        [
            Subtopology(
                each.subtopology_id,
                list(each.source_topics),
                list(each.repartition_sink_topics),
                [_topic_info(sized.get(topic.name, topic)) for topic in each.changelog_topics],
                [_topic_info(sized.get(topic.name, topic)) for topic in each.repartition_source_topics],
            )
            for each in topology.subtopologies
        ],
    )


def _topic_info(topic: InternalTopic) -> TopicInfo:
    configs = [KeyValue(key, value) for key, value in topic.configs]
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)


def _member(described: DescribedStreamsGroup, member: StreamsMember) -> Member:
    endpoint = member.endpoint
    reported = described.offsets.get(member.member_id, NO_OFFSETS)
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=[KeyValue(key, value) for key, value in member.client_tags.items()],
        task_offsets=_offsets(reported.offsets),
        task_end_offsets=_offsets(reported.end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(described.group.target.get(member.member_id, NONE)),
        is_classic=False,
    )


def _offsets(offsets: Mapping[Task, int]) -> list[TaskOffset]:
    return [TaskOffset(name, partition, offset) for (name, partition), offset in sorted(offsets.items())]


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(*(_task_ids(role) for role in tasks))


def _task_ids(tasks: Iterable[Task]) -> list[TaskIds]:
    return [TaskIds(name, partitions) for name, partitions in by_subtopology(tasks).items()]
