"""The filter `team_topics`: adds a prefix to topics in requests, and removes it from topics in responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klamm import ErrorCode, KafkaError, RequestContext, RequestFilter, setting
from klamm.filters import TopicNames
from klamm.wire import map_entities
from klamm.wire.api_keys import ApiKey
from klamm.wire.entities import map_consumer_protocol


@dataclass(frozen=True, slots=True)
class TopicPrefixSettings:
    """The table `team_topics` of a listener."""

    prefix: str = setting(doc="The beginning that the names of these clients' topics have at the broker.")


class TopicPrefix(RequestFilter):
    """Filters all APIs. If Kafka gets a new API with names of topics, this needs no change."""

    settings: TopicPrefixSettings

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if getattr(message, "subscribed_topic_regex", None):
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, "Subscribe to topics by name.")
        map_entities(message, "topicName", self._add)
        return map_consumer_protocol(message, self._add)

    def on_response(self, response: Any, context: RequestContext) -> Any:
        if context.api_key == ApiKey.METADATA:
            response.topics = [topic for topic in response.topics if self._is_ours(topic.name)]
        elif context.api_key == ApiKey.OFFSET_FETCH:
            for part in (response, *response.groups):
                part.topics = [topic for topic in part.topics if self._is_ours(topic.name)]
        map_entities(response, "topicName", self._remove)
        return map_consumer_protocol(response, self._remove)

    def topic_name(self, topic_id: bytes, context: RequestContext, behind: TopicNames) -> str | None:
        """Return the name for filters before this one. Ids stay as they are."""
        name = behind(topic_id, context)
        return self._remove(name) if name is not None and self._is_ours(name) else None

    def _add(self, name: str) -> str:
        return self.settings.prefix + name

    def _is_ours(self, name: str | None) -> bool:
        # A topic without a name has the topic id that the client has sent.
        return not name or name.startswith(self.settings.prefix)

    def _remove(self, name: str) -> str:
        if not self._is_ours(name):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "The response names topics of other clients.")
        return name.removeprefix(self.settings.prefix)
