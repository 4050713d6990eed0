"""StreamsGroupHeartbeat, versions 0 and 1 (KIP-1071).

With epoch 0 a member of a Kafka Streams application joins, with -1 it leaves, and with -2 a static member leaves
temporarily. With its own epoch it stays in the group, reports its tasks, and gets the assignment that the server
computes. Answered once the changes are durable. Follows `KafkaApis.handleStreamsGroupHeartbeat` and
`GroupMetadataManager.streamsGroupHeartbeat`.

- A field that does not fit the epoch, tasks that the topology does not have, a topology that differs from the group's
  and has no lower epoch, source topics by regular expression: INVALID_REQUEST.
- A topology that is invalid no matter which topics exist, or that names Kafka's internal topics:
  STREAMS_INVALID_TOPOLOGY.
- The answer contains a status for each temporary problem and notice: topics that are missing or have other numbers of
  partitions, a topology older than the group's, a delayed assignment, the end of the application. Missing internal
  topics are created in the background, as the topology describes them.
- Version 1 has the acceptable lag of a copy, and a status for client tags that are missing. The server keeps no
  descriptions of topologies (KIP-1331), and asks for none.
- A full group: GROUP_MAX_SIZE_REACHED; a group that does not exist or is of another type: GROUP_ID_NOT_FOUND.
- An unknown member: UNKNOWN_MEMBER_ID; another epoch than the member's: FENCED_MEMBER_EPOCH. The client then gives up
  its tasks and joins again.
- A join with an instance id whose member has not left: UNRELEASED_INSTANCE_ID. A heartbeat with the instance id of
  another member: FENCED_INSTANCE_ID.
- Without `streams` in `group.coordinator.rebalance.protocols`, or with `streams.version` 0: UNSUPPORTED_VERSION.
- A change that cannot be written: NOT_COORDINATOR, so that the client looks up the coordinator and retries.

Authorization: READ on the group; DESCRIBE on each topic of the topology: TOPIC_AUTHORIZATION_FAILED. Creating an
internal topic requires CREATE on the cluster or on the topic; the status names the topics without this permission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    RequestTaskIds,
    ResponseEndpoint,
    ResponseTaskIds,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskOffset,
    TopicInfo,
    TopicPartition,
)
from klamm.wire.messages.streams_group_heartbeat import Topology as WireTopology
from klamm_broker.features import STREAMS_VERSION
from klamm_broker.groups.streams.requests import Endpoint, StreamsHeartbeat, StreamsHeartbeatResult
from klamm_broker.groups.streams.tasks import Task, Tasks, by_subtopology
from klamm_broker.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from klamm_broker.handlers.epoch_groups import check_heartbeat
from klamm_broker.handlers.internal_topics import create_internal_topics
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import denial, denied_topics
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_MISSING_CLIENT_TAGS = 1


def keep_streams_member(
    broker: BrokerServices, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> Pending:
    """Serve a member's heartbeat. Raises KafkaError. Runs on a request handler's thread."""
    require_streams_groups(broker)
    check_heartbeat(broker, context, request.group_id)
    topology = None if request.topology is None else _topology(request.topology)
    if topology is not None and denied_topics(context, AclOperation.DESCRIBE, topology.topic_names):
        raise denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    endpoint = request.user_endpoint
    broker.groups.streams.heartbeat(
        StreamsHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            epoch=request.member_epoch,
            client_id=context.client_id or "",
            client_host=f"/{context.client_address.host}",
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topology=topology,
            owned=_owned(request),
            has_partial_tasks=_has_partial_tasks(request),
            process_id=request.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags=None if request.client_tags is None else {tag.key: tag.value for tag in request.client_tags},
            offsets=_offsets(request.task_offsets),
            end_offsets=_offsets(request.task_end_offsets),
            shuts_down=request.shutdown_application,
            endpoint_epoch=request.endpoint_information_epoch,
            knows_missing_tags=context.api_version >= _FIRST_VERSION_WITH_MISSING_CLIENT_TAGS,
            create_topics=lambda topics: create_internal_topics(broker, context, topics),
            owner=owner_of(context),
        ),
        lambda result: context.respond(_response(result)),
    )
    return context.later()


def require_streams_groups(broker: BrokerServices) -> None:
    """Raise KafkaError(UNSUPPORTED_VERSION) if streams groups are switched off."""
    protocols = broker.settings.group_coordinator_rebalance_protocols
    if "streams" not in protocols or not broker.features.level(STREAMS_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _topology(topology: WireTopology) -> Topology:
    subtopologies = []
    for each in topology.subtopologies:
        if each.source_topic_regex:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
        subtopologies.append(
            Subtopology(
                each.subtopology_id,
                tuple(each.source_topics),
                tuple(each.repartition_sink_topics),
                _internal_topics(each.repartition_source_topics),
                _internal_topics(each.state_changelog_topics),
                tuple(
                    CopartitionGroup(tuple(group.source_topics), tuple(group.repartition_source_topics))
                    for group in each.copartition_groups
                ),
            )
        )
    return Topology(topology.epoch, tuple(subtopologies))


def _internal_topics(topics: Iterable[TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return Tasks(_tasks(active), _tasks(standby), _tasks(warmup))


def _has_partial_tasks(request: StreamsGroupHeartbeatRequest) -> bool:
    given = [each is not None for each in (request.active_tasks, request.standby_tasks, request.warmup_tasks)]
    return any(given) and not all(given)


def _tasks(tasks: Iterable[RequestTaskIds]) -> frozenset[Task]:
    return frozenset((each.subtopology_id, partition) for each in tasks for partition in each.partitions)


def _offsets(offsets: Sequence[TaskOffset] | None) -> Mapping[Task, int] | None:
    if offsets is None:
        return None
    return {(each.subtopology_id, each.partition): each.offset for each in offsets}


def _response(result: StreamsHeartbeatResult) -> StreamsGroupHeartbeatResponse:
    active, standby, warmup = (None, None, None) if result.assignment is None else result.assignment
    return StreamsGroupHeartbeatResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        task_offset_interval_ms=result.task_offset_interval_ms,
        acceptable_recovery_lag=result.acceptable_recovery_lag,
        status=[Status(status.code, status.detail) for status in result.statuses],
        active_tasks=_task_ids(active),
        standby_tasks=_task_ids(standby),
        warmup_tasks=_task_ids(warmup),
        endpoint_information_epoch=result.endpoint_epoch,
        partitions_by_user_endpoint=None
        if result.endpoints is None
        else [
            EndpointToPartitions(
                ResponseEndpoint(each.endpoint.host, each.endpoint.port),
                _partitions(each.active),
                _partitions(each.standby),
            )
            for each in result.endpoints
        ],
    )


def _task_ids(tasks: Iterable[Task] | None) -> list[ResponseTaskIds] | None:
    if tasks is None:
        return None
    return [ResponseTaskIds(name, partitions) for name, partitions in by_subtopology(tasks).items()]


def _partitions(partitions: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(name, list(indexes)) for name, indexes in partitions.items()]
