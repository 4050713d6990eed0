"""`preparing`, which lets an authorizer start its decisions before the handler of a request runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from klamm.api.acl import CLUSTER_NAME, ResourceType
from klamm.api.authorizer import Authorizer
from klamm.api.context import RequestContext, TopicNames
from klamm.api.filters import Hold, Release
from klamm.api.part_failures import unfit
from klamm.wire.api_keys import ApiKey
from klamm.wire.entities import map_entities

log = logging.getLogger("klamm.authorizer")

_TYPES: Final = (
    ("topicName", ResourceType.TOPIC),
    ("groupId", ResourceType.GROUP),
    ("transactionalId", ResourceType.TRANSACTIONAL_ID),
)
_BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_WITH_SESSIONS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
_SESSION: Final = "klamm.prepared"
_MAX_REMEMBERED: Final = 1_000
# Kafka's limit: no topic has a longer name.
_MAX_TOPIC_NAME: Final = 249


def preparing(authorizer: Authorizer, names: TopicNames | None) -> Callable[[Any, RequestContext], Any] | None:
    """Return the function that is called before the handler of each request; None if the authorizer decides at once.

    `names` maps topic ids to the names that the handler set knows.
    """
    if type(authorizer).prepare is Authorizer.prepare:
        return None

    def prepare(message: Any, context: RequestContext) -> Any:
        if context.api_key in _BEFORE_LOGIN:
            return message
        resources = _resources(message, context, names)
        try:
            release = authorizer.prepare(context, resources)
            if release is not None and not isinstance(release, Release):
                raise unfit(release, "None", "a Release")
        except Exception as error:
            # After an exception the handler runs at once, and `authorize` decides.
            context.listener.failures.log(log, authorizer, "prepare", error)
            return message
        return message if release is None else Hold(message, authorizer.prepare_max_ms, release)

    return prepare


def _resources(message: Any, context: RequestContext, names: TopicNames | None) -> list[tuple[ResourceType, str]]:
    found = {(ResourceType.CLUSTER, CLUSTER_NAME): None}

    for entity_type, resource_type in _TYPES:

        def note(name: str, kind: ResourceType = resource_type) -> str:
            if kind is not ResourceType.TOPIC or len(name) <= _MAX_TOPIC_NAME:
                found[kind, name] = None
            return name

        map_entities(message, entity_type, note)
    if names is not None:
        for topic_id in _topic_ids(message):
            name = names(topic_id, context)
            if name is not None:
                found[ResourceType.TOPIC, name] = None
    if context.api_key in _WITH_SESSIONS:
        # A later request of a fetch session leaves out the topics that have not changed.
        session = context.connection.state.setdefault(_SESSION, {})
        session.update({one: None for one in found if one[0] is ResourceType.TOPIC})
        while len(session) > _MAX_REMEMBERED:
            del session[next(iter(session))]
        found = session | found
    return list(found)


def _topic_ids(message: Any) -> Iterator[bytes]:
    for part in (message, *getattr(message, "groups", ())):
        for field in ("topics", "topic_data"):
            for topic in getattr(part, field, None) or ():
                topic_id = getattr(topic, "topic_id", None)
                if topic_id is not None and any(topic_id):
                    yield topic_id
