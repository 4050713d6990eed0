"""The rule of OffsetFetch: the client gets only groups and topics that it may describe."""

from __future__ import annotations

from typing import Any, Final

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from klamm_gateway.authorization.checks import (
    Forwarded,
    LocalAnswer,
    Verdict,
    may,
    require,
    topic_of,
    with_field,
)
from klamm_gateway.layout import Cluster

_SEVERAL_GROUPS_FROM: Final = 8
_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def authorize_offset_fetch(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    """Answer for denied groups and topics. Raises KafkaError in early versions, which have a single group, if it is
    denied.
    """
    if context.api_version < _SEVERAL_GROUPS_FROM:
        require(context, AclOperation.DESCRIBE, ResourceType.GROUP, message.group_id)
        allowed, denied = _split(message.topics, context, cluster)
        refused = [
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(each, -1, -1, "", _DENIED) for each in topic.partition_indexes],
            )
            for topic in denied
        ]

        def change(response: Any) -> Any:
            response.topics = [*_visible(response.topics, context, cluster), *refused]
            return response

        return Forwarded(with_field(message, "topics", allowed), change)
    return _several_groups(message, context, cluster)


def _several_groups(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    groups, refused_groups, refused_topics = [], [], {}
    for group in message.groups:
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            refused_groups.append(OffsetFetchResponseGroup(group.group_id, error_code=code))
            continue
        allowed, denied = _split(group.topics, context, cluster)
        groups.append(with_field(group, "topics", allowed))
        refused_topics[group.group_id] = [
            OffsetFetchResponseTopics(
                topic.name,
                topic.topic_id,
                [OffsetFetchResponsePartitions(each, -1, -1, "", _DENIED) for each in topic.partition_indexes],
            )
            for topic in denied
        ]
    if not groups:
        return LocalAnswer(OffsetFetchResponse(groups=refused_groups))

    def change(response: Any) -> Any:
        for group in response.groups:
            group.topics = [*_visible(group.topics, context, cluster), *refused_topics.get(group.group_id, ())]
        response.groups += refused_groups
        return response

    return Forwarded(with_field(message, "groups", groups), change)


def _split(topics: Any, context: RequestContext, cluster: Cluster) -> tuple[Any, list[Any]]:
    """Return the allowed and the denied topics. None means all topics; then the response is filtered."""
    if topics is None:
        return None, []
    allowed: list[Any] = []
    denied: list[Any] = []
    for topic in topics:
        name = topic_of(topic, cluster)
        may_describe = name is not None and context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        (allowed if may_describe else denied).append(topic)
    return allowed, denied


def _visible(topics: list[Any], context: RequestContext, cluster: Cluster) -> list[Any]:
    named = [(topic, topic_of(topic, cluster)) for topic in topics]
    return [
        topic
        for topic, name in named
        if name is not None and may(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    ]
