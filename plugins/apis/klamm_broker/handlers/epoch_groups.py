"""Code that the handlers of heartbeats and descriptions of consumer, share and streams groups share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.requests import EpochHeartbeatResult
from klamm_broker.security.authorization import authorized_operations, denial, denied_topics, may_group, require_group
from klamm_broker.services import BrokerServices

TOPICS_DENIED: Final = "The group has described topic(s) that the client is not authorized to describe."


class _Request(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


class _DescribedGroup(Protocol):
    authorized_operations: int


class _TopicPartitions(Protocol):
    topic_name: str
    partitions: list[int]


class _Assignment(Protocol):
    @property
    def topic_partitions(self) -> Sequence[_TopicPartitions]: ...


GroupT = TypeVar("GroupT", bound=_DescribedGroup)
ResponseT = TypeVar("ResponseT")


def check_heartbeat(broker: BrokerServices, context: RequestContext, group_id: str, topics: Iterable[str] = ()) -> None:
    """Raise KafkaError unless the client may join the group and describe the topics, and this node coordinates the
    group.
    """
    require_group(context, AclOperation.READ, group_id)
    broker.cluster.check_coordinates(group_id)
    if denied_topics(context, AclOperation.DESCRIBE, topics):
        raise denial(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def heartbeat_response(
    result: EpochHeartbeatResult,
    response: Callable[..., ResponseT],
    assignment: Callable[..., Any],
    topic_partitions: Callable[..., Any],
) -> ResponseT:
    """Return the answer to a heartbeat of a consumer or a share group, made with the classes of its API."""
    assigned = result.assignment
    return response(
        error_code=result.error_code,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None
        if assigned is None
        else assignment([topic_partitions(topic, sorted(each)) for topic, each in assigned.items()]),
    )


def describe_each(
    broker: BrokerServices,
    request: _Request,
    context: RequestContext,
    *,
    describe: Callable[[str], GroupT],
    failed: Callable[[int, str | None, str], GroupT],
    bytes_of: Callable[[GroupT], int],
) -> list[GroupT]:
    """Return the groups of a request, each described separately, with the denied ones first.

    `failed(error_code, message, group_id)` returns the entry for a group with an error. `bytes_of` returns an upper
    bound of a group's encoded size. Raises KafkaError if the response becomes too large.
    """
    denied = [group_id for group_id in request.group_ids if not may_group(context, AclOperation.DESCRIBE, group_id)]
    groups = [failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id) for group_id in denied]
    answer_bytes = 0
    left_out = frozenset(denied)
    for group_id in request.group_ids:
        if group_id in left_out:
            continue
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            broker.cluster.check_coordinates(group_id)
            group = describe(group_id)
        except KafkaError as error:
            group = failed(error.error_code, error.message, group_id)
        else:
            if request.include_authorized_operations:
                group.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
        groups.append(group)
        answer_bytes += bytes_of(group)
        context.check_answer_bytes(answer_bytes)
    return groups


def require_topics(broker: BrokerServices, context: RequestContext, topic_ids: Iterable[bytes]) -> None:
    """Raise KafkaError(TOPIC_AUTHORIZATION_FAILED) unless each of these topics may be described."""
    names = [topic.name for topic_id in topic_ids if (topic := broker.topics.by_id(topic_id)) is not None]
    if denied_topics(context, AclOperation.DESCRIBE, names):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_DENIED)


def named(broker: BrokerServices, partitions: Partitions) -> Iterator[tuple[bytes, str, list[int]]]:
    """Yield the id, the name and the partitions of each topic that exists."""
    for topic_id, indexes in partitions.items():
        if (topic := broker.topics.by_id(topic_id)) is not None:
            yield topic_id, topic.name, sorted(indexes)


def bytes_of_member(member_id: str, *assignments: _Assignment | None) -> int:
    """Return an upper bound of the encoded size of a member."""
    assigned = [each for one in assignments if one for each in one.topic_partitions]
    return len(member_id) + sum(16 + len(each.topic_name) + 4 * len(each.partitions) for each in assigned)
