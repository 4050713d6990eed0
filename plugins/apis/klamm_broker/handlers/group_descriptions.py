"""Code of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: each group is described on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation, ResourceType
from klamm_broker.security.authorization import authorized_operations, denied_topics, may_group

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klamm import RequestContext
    from klamm_broker.services import BrokerServices

TOPICS_DENIED: Final = "The group has described topic(s) that the client is not authorized to describe."


class _Request(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


class _DescribedGroup(Protocol):
    authorized_operations: int


GroupT = TypeVar("GroupT", bound=_DescribedGroup)


def describe_each(
    request: _Request,
    context: RequestContext,
    *,
    describe: Callable[[str], GroupT],
    failed: Callable[[int, str | None, str], GroupT],
    bytes_of: Callable[[GroupT], int],
) -> list[GroupT]:
    """The groups of a request, the denied ones first. `failed` gets code, message and group id; `bytes_of` says the
    most of what a group takes in an answer, and not more. Raises KafkaError if the answer gets too large."""
    denied = [group_id for group_id in request.group_ids if not may_group(context, AclOperation.DESCRIBE, group_id)]
    groups = [failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id) for group_id in denied]
    answer_bytes = 0
    left_out = frozenset(denied)
    for group_id in request.group_ids:
        if group_id in left_out:
            continue
        try:
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
