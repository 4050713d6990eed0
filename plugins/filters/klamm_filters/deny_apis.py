"""The filter `deny_apis`.

If CreateTopics is denied, Metadata creates no topics either. Metadata itself is answered, because clients cannot work
without it. A Metadata request before version 4 cannot forbid the creation of topics. So the filter replaces it with a
request for all topics, and reduces the response to the topics that the client named.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final
from weakref import WeakKeyDictionary

from klamm import ErrorCode, KafkaError, ListenerContext, RequestContext, RequestFilter
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from klamm_filters.api_names import API_KEYS, matching
from klamm_filters.filter_settings import DenyApisSettings
from klamm_filters.refusals import Refusals

_FIRST_VERSION_THAT_SAYS_CREATE: Final = 4


class DenyApis(RequestFilter):
    """The filter `deny_apis`. Other APIs than the denied ones, and sometimes Metadata, do not reach it and cost
    nothing.
    """

    settings: DenyApisSettings

    def __init__(self, settings: DenyApisSettings) -> None:
        super().__init__(settings)
        denied = matching(settings.deny)
        if settings.allow:
            denied |= frozenset(API_KEYS.values()) - matching(settings.allow)
        self._denied = denied
        self._exempt = frozenset(settings.except_principals)
        self._refusals = Refusals("deny_apis")
        self._creates_nothing = ApiKey.CREATE_TOPICS in denied and ApiKey.METADATA not in denied
        self._named: WeakKeyDictionary[RequestContext, list[str]] = WeakKeyDictionary()

    def open(self, listener: ListenerContext) -> None:
        self._refusals.open(listener)

    @property
    def api_keys(self) -> Collection[int]:
        return self._denied | {ApiKey.METADATA} if self._creates_nothing else self._denied

    def on_request(self, message: Any, context: RequestContext) -> Any:
        if self._exempt and str(context.principal) in self._exempt:
            return message
        if self._creates_nothing and context.api_key == ApiKey.METADATA:
            return self._without_creation(message, context)
        self._refusals.note(context, "the API is denied")
        raise KafkaError(ErrorCode[self.settings.error], f"{context.api_name} is denied by this listener.")

    def _without_creation(self, message: MetadataRequest, context: RequestContext) -> MetadataRequest:
        if context.api_version >= _FIRST_VERSION_THAT_SAYS_CREATE:
            message.allow_auto_topic_creation = False
        elif message.topics:
            self._named[context] = list(dict.fromkeys(topic.name or "" for topic in message.topics))
            message.topics = None if context.api_version else []
        return message

    def on_response(self, response: Any, context: RequestContext) -> Any:
        names = self._named.pop(context, None)
        if names is not None:
            _keep(response, names)
        return response


def _keep(response: MetadataResponse, names: list[str]) -> None:
    """Reduce a response for all topics to the named topics, and report missing topics as unknown."""
    found = {topic.name: topic for topic in response.topics}
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    response.topics = [found.get(name) or MetadataResponseTopic(missing, name) for name in names]
