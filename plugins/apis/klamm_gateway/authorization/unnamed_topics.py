"""Rules for requests whose responses name topics that the request does not name: the topics of a group or a
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.primitives import ZERO_UUID
from klamm_gateway.authorization.checks import (
    NOT_REQUESTED,
    EachOf,
    Forwarded,
    Rule,
    Verdict,
    denial,
    may,
    named,
    operations,
    require,
    require_topics,
    then,
    topic_of,
)
from klamm_gateway.forwarded_request import UNCHANGED
from klamm_gateway.layout import Cluster

_OP = AclOperation
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_TOPICS_DENIED: Final = "The group has described topic(s) that the client is not authorized to describe."


def described_groups(field: str, *, name_topics: bool) -> Rule:
    """Return a rule that requires DESCRIBE on each group; with `name_topics` also on the topics of its assignments
    (KIP-848).
    """
    return partial(_described_groups, field, name_topics)


def _described_groups(
    field: str, name_topics: bool, message: Any, context: RequestContext, cluster: Cluster
) -> Verdict:
    verdict = EachOf(field, "groups", _OP.DESCRIBE, _GROUP, named)(message, context, cluster)
    shows_operations = message.include_authorized_operations
    if not (shows_operations or name_topics):
        return verdict

    def change(response: Any) -> Any:
        for group in response.groups:
            if shows_operations and group.authorized_operations != NOT_REQUESTED:
                group.authorized_operations = operations(context, _GROUP, group.group_id)
            if name_topics and not all(may(context, _OP.DESCRIBE, _TOPIC, each) for each in _topics_of(group)):
                _deny(group)
        return response

    return then(verdict, change)


def _topics_of(group: Any) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            if assignment is not None:
                yield from (each.topic_name for each in assignment.topic_partitions)


def _deny(group: Any) -> None:
    denied = type(group)(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), _TOPICS_DENIED, group.group_id)
    for field in group.__slots__:
        setattr(group, field, getattr(denied, field))


def authorize_share_fetch(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    """Require READ on the group and on all topics, including those that the node's session has from earlier requests.

    A client that knows a member's id can continue the member's session, and permissions may have been withdrawn since
    the session was opened.
    """
    require(context, _OP.READ, _GROUP, message.group_id)
    require_topics(context, cluster, _OP.READ, message.topics)

    def change(response: Any) -> Any:
        for topic in response.responses:
            if any(each.records for each in topic.partitions):
                name = topic_of(topic, cluster)
                if name is None or not context.authorize(_OP.READ, _TOPIC, name):
                    raise denial(_TOPIC)
        return UNCHANGED

    return Forwarded(message, change)


def authorize_share_offsets(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    """Require DESCRIBE on each group and each named topic. A request for all topics of a group returns those that the
    client may describe.
    """
    rule = EachOf("groups", "groups", _OP.DESCRIBE, _GROUP, lambda group, _: group.group_id)
    named_topics = {group.group_id: group.topics is not None for group in message.groups}

    def change(response: Any) -> Any:
        for group in response.groups:
            visible = []
            # Only decisions about resources that the client has named are logged.
            are_named = named_topics.get(group.group_id, False)
            decides = context.authorize if are_named else partial(may, context)
            for topic in group.topics:
                if decides(_OP.DESCRIBE, _TOPIC, topic.topic_name):
                    visible.append(topic)
                elif are_named:
                    _deny_offsets(topic)
                    visible.append(topic)
            group.topics = visible
        return response

    return then(rule(message, context, cluster), change)


def _deny_offsets(topic: Any) -> None:
    error = denial(_TOPIC)
    topic.topic_id = ZERO_UUID
    for partition in topic.partitions:
        without = type(partition)(partition.partition_index)
        without.error_code, without.error_message = int(error.error_code), error.message
        for field in partition.__slots__:
            setattr(partition, field, getattr(without, field))


def authorize_described_transactions(message: Any, context: RequestContext, cluster: Cluster) -> Verdict:
    """Require DESCRIBE on each transactional id. Return only topics that the client may describe."""
    rule = EachOf("transactional_ids", "transaction_states", _OP.DESCRIBE, ResourceType.TRANSACTIONAL_ID, named)

    def change(response: Any) -> Any:
        for state in response.transaction_states:
            state.topics = [each for each in state.topics if may(context, _OP.DESCRIBE, _TOPIC, each.topic)]
        return response

    return then(rule(message, context, cluster), change)
