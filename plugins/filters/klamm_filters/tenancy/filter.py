"""The filter `topic_prefix`: maps the names in all requests and responses of tenants.

klamm calls it on the thread that runs the request, for several requests at once.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from klamm import ErrorCode, KafkaError, KafkaPrincipal, ListenerContext, RequestContext, RequestFilter
from klamm.filters import TopicNames, clear_records
from klamm.wire.api_keys import SPECS, ApiKey
from klamm.wire.entities import map_consumer_protocol, map_entities
from klamm.wire.primitives import WireError
from klamm_filters.refusals import Refusals
from klamm_filters.tenancy.fields import FieldChanges, entity_paths, entity_values, leave_out
from klamm_filters.tenancy.rules import HARMLESS, MAPPED, refused
from klamm_filters.tenancy.tenancy_settings import TopicPrefixSettings, prefix_of, read_secret
from klamm_filters.tenancy.tenant import Tenant

_FETCHES: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)
_NAMES: Final = ("topicName", "groupId", "transactionalId")
_TEXTS: Final = ("error_message", "batch_index_error_message", "acknowledge_error_message", "status_detail")
_UNUSED_FROM: Final = {(ApiKey.OFFSET_FETCH, "group_id"): 8, (ApiKey.FIND_COORDINATOR, "key"): 4}
"""The first version of a request without the field."""
_KEPT_PRINCIPALS: Final = 10_000


class _Mapper:
    """A tenant, with prepared mappings of its names."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.request_fields = FieldChanges({"topic_id": tenant.ids.to_broker})
        self.response_fields = FieldChanges({"topic_id": tenant.ids.to_client, **dict.fromkeys(_TEXTS, tenant.text)})
        self.hidden = {name: partial(_is_hidden, tenant, name == "topicName") for name in _NAMES}


def _is_hidden(tenant: Tenant, by_id: bool, name: str | None) -> bool:
    # If a topic has no name, the client has named it by id.
    return not (by_id if not name else tenant.owns(name))


class _Tenants:
    """The tenants of one configuration, created at their first request.

    Any thread may call it. If two threads create the same tenant, one of the two equal objects is dropped.
    """

    def __init__(self, settings: TopicPrefixSettings, secret: bytes) -> None:
        self._settings, self._secret = settings, secret
        self._by_principal: dict[tuple[str, str], _Mapper | None] = {}
        self._by_prefix: dict[str, _Mapper] = {}

    def find(self, principal: KafkaPrincipal) -> _Mapper | None:
        """Return the tenant of a principal, or None if the principal has no prefix."""
        key, known = (principal.type, principal.name), self._by_principal
        if key not in known:
            prefix = prefix_of(self._settings, principal)
            mapper = None if prefix is None else self._of_prefix(prefix)
            if len(known) >= _KEPT_PRINCIPALS:
                known = self._by_principal = {}
            known[key] = mapper
        return known[key]

    def _of_prefix(self, prefix: str) -> _Mapper:
        if len(self._by_prefix) >= _KEPT_PRINCIPALS:
            self._by_prefix = {}
        return self._by_prefix.setdefault(prefix, _Mapper(Tenant(prefix, self._secret)))


class TopicPrefix(RequestFilter):
    """The filter `topic_prefix`. All APIs except the harmless ones reach it, and it refuses an API without a rule."""

    def __init__(self, settings: TopicPrefixSettings) -> None:
        super().__init__(settings)
        self._tenants = _Tenants(settings, b"")
        self._refusals = Refusals("topic_prefix")

    def open(self, listener: ListenerContext) -> None:
        self.reconfigure(self.settings)
        self._refusals.open(listener)

    def reload(self) -> None:
        """Read the secret again."""
        self.reconfigure(self.settings)

    def reconfigure(self, settings: TopicPrefixSettings) -> bool:
        """Use the new prefixes from the next request on. Existing topics are not renamed."""
        self._tenants = _Tenants(settings, read_secret(settings.topic_id_secret_file))
        self.settings = settings
        return True

    @property
    def api_keys(self) -> Collection[int]:
        return frozenset(spec.api_key for spec in SPECS) - HARMLESS

    def on_request(self, message: Any, context: RequestContext) -> Any:
        mapper = self._tenants.find(context.principal)
        rule = MAPPED.get(context.api_key)
        try:
            if mapper is None:
                raise refused(context, "is not for principals without a prefix")
            if rule is None:
                raise refused(context)
            _check_groups(message, context)
            _map_consumer_bytes(message, mapper.tenant)
            if rule.request is not None:
                rule.request(message, context, mapper.tenant)
        except KafkaError as error:
            self._refusals.note(context, error.message or error.error_code.name)
            raise
        if not rule.maps_request:
            for name in _NAMES:
                map_entities(message, name, mapper.tenant.add)
        mapper.request_fields.apply(message)
        return message

    def topic_name(self, topic_id: bytes, context: RequestContext, behind: TopicNames) -> str | None:
        mapper = self._tenants.find(context.principal)
        if mapper is None:
            return None
        name = behind(mapper.tenant.ids.to_broker(topic_id), context)
        return mapper.tenant.strip(name) if name is not None and mapper.tenant.owns(name) else None

    def on_response(self, response: Any, context: RequestContext) -> Any:
        mapper = self._tenants.find(context.principal)
        rule = MAPPED.get(context.api_key)
        if mapper is None or rule is None:
            raise refused(context)
        if rule.response is not None:
            rule.response(response, context, mapper.tenant)
        fetched = list(response.responses) if context.api_key in _FETCHES else []
        if not rule.maps_response:
            for name in _NAMES:
                for path in entity_paths(response, name):
                    leave_out(response, path, mapper.hidden[name])
                map_entities(response, name, mapper.tenant.strip)
            map_consumer_protocol(response, mapper.tenant.strip_or_hide)
        mapper.response_fields.apply(response)
        if fetched and len(response.responses) < len(fetched):
            _close_left_out(fetched, response.responses)
        return response


def _map_consumer_bytes(message: Any, tenant: Tenant) -> None:
    """Map the topics in the bytes that consumers exchange through their group.

    Raises KafkaError for bytes that a broker may parse differently.
    """
    try:
        map_consumer_protocol(message, tenant.add, strict=True)
    except WireError:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "The metadata that consumers exchange through their group cannot be read.",
        ) from None


def _close_left_out(before: list[Any], left: list[Any]) -> None:
    """Close the files of topics that were left out of a response."""
    kept = {id(topic) for topic in left}
    for topic in before:
        if id(topic) not in kept:
            for partition in topic.partitions:
                clear_records(partition)


def _check_groups(message: Any, context: RequestContext) -> None:
    """Raise KafkaError for an empty group id: with the prefix, it would be a group with a name."""
    for path in entity_paths(message, "groupId"):
        if context.api_version >= _UNUSED_FROM.get((ApiKey(context.api_key), path[-1][0]), 1 << 15) and len(path) == 1:
            continue
        if any(value == "" for value in entity_values(message, path)):
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "Clients that have a prefix must name their groups.")
