"""OffsetCommit, versions 2 to 10.

Commits positions in a group, for its members or for a consumer without group management. Answered once the positions
are durable; many commits share one transaction of the store. Follows `KafkaApis.handleOffsetCommitRequest` and
`OffsetMetadataManager.commitOffset`.

- A topic or partition that does not exist: UNKNOWN_TOPIC_OR_PARTITION; from v10, which names topics by id,
  UNKNOWN_TOPIC_ID.
- A group that does not exist, with a generation: ILLEGAL_GENERATION, from v9 GROUP_ID_NOT_FOUND.
- A member of a consumer or streams group with an outdated epoch: STALE_MEMBER_EPOCH; with a version before 9:
  UNSUPPORTED_VERSION.
- The retention time of v2 to v4 applies.
- Authorization: READ on the group and on each topic.
- Positions that cannot be written: NOT_COORDINATOR, so that the client looks up the coordinator and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from klamm import ErrorCode, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from klamm_broker.groups.offsets import CommitRequest, PartitionCommit
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import may_topic, require_group
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_TOPIC_IDS = 10
_FIRST_VERSION_WITH_MEMBER_EPOCHS = 9


def commit_offsets(
    broker: BrokerServices, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Pending:
    """Commit offsets of existing partitions. Each other partition gets an error. Raises KafkaError. Runs on the
    processor's thread, so it must not block.
    """
    require_group(context, AclOperation.READ, request.group_id)
    broker.cluster.check_coordinates(request.group_id)
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    response = OffsetCommitResponse()
    kinds = OffsetCommitResponseTopic, OffsetCommitResponsePartition
    commits, reply = accepted_commits(broker, context, request.topics, response, *kinds, by_id=by_id)
    if not commits:
        return response
    broker.groups.offsets.commit(
        CommitRequest(
            request.group_id,
            commits,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            request.retention_time_ms,
            knows_member_epochs=context.api_version >= _FIRST_VERSION_WITH_MEMBER_EPOCHS,
            owner=owner_of(context),
            topic_by_id=broker.topics.by_id,
        ),
        reply,
    )
    return context.later()


def accepted_commits(
    broker: BrokerServices,
    context: RequestContext,
    topics: Iterable[Any],
    response: Any,
    topic_class: Callable[..., Any],
    partition_class: Callable[..., Any],
    *,
    by_id: bool,
) -> tuple[list[PartitionCommit], Callable[[Sequence[ErrorCode]], None]]:
    """Add all partitions to a response, those that cannot be committed with their errors. Return the positions to
    commit, and the function that takes their outcomes and sends the response.
    """
    guarded = context.listener.authorizer is not None
    commits: list[PartitionCommit] = []
    awaited: list[Any] = []
    for requested in topics:
        topic = broker.topics.by_id(requested.topic_id) if by_id else broker.topics.get(requested.name)
        name = requested.name if not by_id else topic.name if topic is not None else None
        denied = guarded and name is not None and not may_topic(context, AclOperation.READ, name)
        answered = topic_class(requested.name, requested.topic_id)
        response.topics.append(answered)
        for partition in requested.partitions:
            index = partition.partition_index
            result = partition_class(index)
            answered.partitions.append(result)
            if denied:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None and by_id:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic is None or not 0 <= index < len(topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                awaited.append(result)
                epoch, metadata = partition.committed_leader_epoch, partition.committed_metadata
                commits.append(
                    PartitionCommit(topic.name, index, partition.committed_offset, epoch, metadata, topic.id)
                )

    def reply(outcomes: Sequence[ErrorCode]) -> None:
        for result, outcome in zip(awaited, outcomes, strict=True):
            result.error_code = outcome
        context.respond(response)

    return commits, reply
