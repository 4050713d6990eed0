"""The rule of Metadata: the client gets only topics that it may describe, and creates only topics that it may
create.
"""

from __future__ import annotations

from typing import Any, Final

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.metadata import MetadataResponseTopic
from klamm_gateway.authorization.checks import NOT_REQUESTED, Forwarded, Verdict, may, operations, suffices, with_field
from klamm_gateway.layout import Cluster

_FIRST_VERSION_WITHOUT_CREATION: Final = 4


def authorize_metadata(message: Any, context: RequestContext, _cluster: Cluster) -> Verdict:
    """Remove denied names from the request. If it asks for all topics or for ids, filter the response instead.

    Before version 4, a request for names creates topics. In this case the node gets a request for all topics, which
    creates none.
    """
    wanted = message.topics
    only: dict[str, None] | None = None
    denied: dict[str, None] = {}
    ids: frozenset[bytes] = frozenset()
    if wanted:
        names = dict.fromkeys(each.name for each in wanted if each.name)
        describe, topic = AclOperation.DESCRIBE, ResourceType.TOPIC
        denied = dict.fromkeys(name for name in names if not context.authorize(describe, topic, name))
        wanted = [each for each in wanted if each.name not in denied]
        ids = frozenset(each.topic_id for each in wanted if any(each.topic_id))
        message = with_field(message, "topics", wanted)
        if context.api_version >= _FIRST_VERSION_WITHOUT_CREATION:
            if message.allow_auto_topic_creation and not _may_create(context, wanted):
                message = with_field(message, "allow_auto_topic_creation", False)
        elif not wanted or not _may_create(context, wanted):
            only = dict.fromkeys(each.name for each in wanted)
            message = with_field(message, "topics", [] if context.api_version == 0 else None)

    def change(response: Any) -> Any:
        if only is not None:
            found = {topic.name: topic for topic in response.topics if topic.name in only}
            unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            response.topics = [found.get(name) or MetadataResponseTopic(unknown, name) for name in only]
        response.topics = [topic for topic in response.topics if _visible(topic, ids, context)]
        response.topics += [MetadataResponseTopic(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), name) for name in denied]
        if response.cluster_authorized_operations != NOT_REQUESTED:
            response.cluster_authorized_operations = operations(context, ResourceType.CLUSTER)
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_REQUESTED:
                topic.topic_authorized_operations = operations(context, ResourceType.TOPIC, topic.name)
        return response

    return Forwarded(message, change)


def _may_create(context: RequestContext, wanted: list[Any]) -> bool:
    if suffices(context, AclOperation.CREATE):
        return True
    return all(may(context, AclOperation.CREATE, ResourceType.TOPIC, each.name) for each in wanted if each.name)


def _visible(topic: Any, ids: frozenset[bytes], context: RequestContext) -> bool:
    if not topic.name or may(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return True
    if topic.topic_id in ids:
        # The client has requested the topic by id, and must not get its name.
        topic.error_code, topic.name, topic.partitions = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None, []
        topic.topic_authorized_operations = NOT_REQUESTED
        return True
    return False
