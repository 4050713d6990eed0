"""The rules of `topic_prefix` for single APIs: the steps before and after the general mapping of names.

The filter refuses an API that is in neither `MAPPED` nor `HARMLESS`. So a new API stays refused until it is examined
and added here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import ResourceType
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.describe_topic_partitions import RequestCursor
from klamm_filters.tenancy import acl_rules
from klamm_filters.tenancy.tenant import Tenant

Step = Callable[[Any, RequestContext, Tenant], None]

HARMLESS: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
"""APIs without names of topics, groups or transactional ids. Their requests do not reach the filter."""

_BROKER: Final = 4
_TOPIC: Final = int(ResourceType.TOPIC)
_GROUP: Final = 32
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_NAMES_A_TOPIC: Final = "errors.deadletterqueue.topic.name"
"""A config of share groups (KIP-1191). Kafka writes undelivered records to the topic that it names, and may create it.
"""
_NO_SESSION: Final = 0
_SESSIONS: Final = "klamm.filters.topic_prefix.fetch_sessions"
_KEPT_SESSIONS: Final = 100
"""Maximum number of sessions of one connection; a consumer has one."""


class Rule(NamedTuple):
    """The steps of one API. They run before the general mapping of names, or instead of it if `maps_…` is True."""

    request: Step | None = None
    response: Step | None = None
    maps_request: bool = False
    maps_response: bool = False


def refused(context: RequestContext, why: str = "is not for clients that have a prefix") -> KafkaError:
    """Return the error for a request that a tenant may not make."""
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{context.api_name} {why}.")


def _from_cursor(request: Any, context: RequestContext, tenant: Tenant) -> None:
    cursor = request.cursor
    if cursor is None and not request.topics:
        # Responses for all topics are sorted by name, so the tenant's topics are adjacent. Start there: otherwise the
        # response could reach its limit before them.
        request.cursor = RequestCursor(tenant.prefix, 0)
    elif cursor is not None:
        cursor.topic_name = tenant.add(cursor.topic_name)
    for topic in request.topics:
        topic.name = tenant.add(topic.name)


def _own_fetch(request: Any, context: RequestContext, tenant: Tenant) -> None:
    """Refuse a fetch of a follower, because a node would count the client as a replica.

    A session id that this connection did not get is replaced by an unknown one. Brokers do not check the owner of a
    session (KIP-227), so the client could otherwise read the partitions of another client's session.
    """
    state = request.replica_state
    if request.replica_id >= 0 or (state is not None and state.replica_id >= 0):
        raise refused(context, "of a follower is not for clients that have a prefix")
    if request.session_id not in context.connection.state.get(_SESSIONS, ()):
        request.session_id = _NO_SESSION


def _given_session(response: Any, context: RequestContext, tenant: Tenant) -> None:
    if response.session_id == _NO_SESSION:
        return
    known: dict[int, None] = context.connection.state.setdefault(_SESSIONS, {})
    known[response.session_id] = None
    if len(known) > _KEPT_SESSIONS:
        del known[next(iter(known))]


def _elect_leaders(request: Any, context: RequestContext, tenant: Tenant) -> None:
    if request.topic_partitions is None:
        raise refused(context, "must name topics")


def _find_coordinator(request: Any, context: RequestContext, tenant: Tenant) -> None:
    if request.key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        raise refused(context, f"of key type {request.key_type} is not for clients that have a prefix")


def _found_coordinators(response: Any, context: RequestContext, tenant: Tenant) -> None:
    for one in response.coordinators:
        # The client sent an empty id; the broker has refused it.
        one.key = tenant.strip(one.key) if one.key else one.key


def _described_configs(request: Any, context: RequestContext, tenant: Tenant) -> None:
    _check_resources(request, context, (_TOPIC, _GROUP, _BROKER))


def _altered_configs(request: Any, context: RequestContext, tenant: Tenant) -> None:
    _check_resources(request, context, (_TOPIC, _GROUP))
    for resource in request.resources:
        if any(one.name == _NAMES_A_TOPIC and one.value for one in resource.configs):
            raise refused(context, f"of {_NAMES_A_TOPIC} is not for clients that have a prefix")


def _check_resources(request: Any, context: RequestContext, types: tuple[int, ...]) -> None:
    if any(one.resource_type not in types for one in request.resources):
        raise refused(context, "of other resources than topics and groups is not for clients that have a prefix")


def _listed_config_resources(response: Any, context: RequestContext, tenant: Tenant) -> None:
    resources = response.config_resources
    response.config_resources = [one for one in resources if one.resource_type in (_TOPIC, _GROUP, _BROKER)]


def _transactional_id_pattern(request: Any, context: RequestContext, tenant: Tenant) -> None:
    if request.transactional_id_pattern:
        request.transactional_id_pattern = tenant.pattern_to_broker(request.transactional_id_pattern)


def _subscribed_regex(request: Any, context: RequestContext, tenant: Tenant) -> None:
    if request.subscribed_topic_regex:
        request.subscribed_topic_regex = tenant.pattern_to_broker(request.subscribed_topic_regex)


def _members_regex(response: Any, context: RequestContext, tenant: Tenant) -> None:
    for group in response.groups:
        for member in group.members:
            if member.subscribed_topic_regex:
                member.subscribed_topic_regex = tenant.pattern_to_client(member.subscribed_topic_regex)


def _source_regexes(request: Any, context: RequestContext, tenant: Tenant) -> None:
    for one in request.topology.subtopologies if request.topology is not None else ():
        one.source_topic_regex = [tenant.pattern_to_broker(pattern) for pattern in one.source_topic_regex]


def _new_token(request: Any, context: RequestContext, tenant: Tenant) -> None:
    principal = context.principal
    owner = request.owner_principal_type or principal.type, request.owner_principal_name or principal.name
    if owner != (principal.type, principal.name):
        raise refused(context, "for another principal is not for clients that have a prefix")


def _own_tokens(response: Any, context: RequestContext, tenant: Tenant) -> None:
    own = context.principal.type, context.principal.name
    response.tokens = [one for one in response.tokens if (one.principal_type, one.principal_name) == own]


_PLAIN: Final = Rule()

MAPPED: Final[dict[int, Rule]] = {
    **dict.fromkeys(
        (
            ApiKey.PRODUCE,
            ApiKey.LIST_OFFSETS,
            ApiKey.METADATA,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.DELETE_RECORDS,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_GROUPS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.OFFSET_DELETE,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.SHARE_FETCH,
            ApiKey.SHARE_ACKNOWLEDGE,
            ApiKey.STREAMS_GROUP_DESCRIBE,
            ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ),
        _PLAIN,
    ),
    ApiKey.FETCH: Rule(_own_fetch, _given_session),
    ApiKey.FIND_COORDINATOR: Rule(_find_coordinator, _found_coordinators),
    ApiKey.DESCRIBE_ACLS: Rule(acl_rules.describe, acl_rules.described, True, True),
    ApiKey.CREATE_ACLS: Rule(acl_rules.create, None, True),
    ApiKey.DELETE_ACLS: Rule(acl_rules.delete, acl_rules.deleted, True, True),
    ApiKey.DESCRIBE_CONFIGS: Rule(_described_configs),
    ApiKey.ALTER_CONFIGS: Rule(_altered_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rule(_altered_configs),
    ApiKey.CREATE_DELEGATION_TOKEN: Rule(_new_token),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Rule(None, _own_tokens),
    ApiKey.ELECT_LEADERS: Rule(_elect_leaders),
    ApiKey.LIST_TRANSACTIONS: Rule(_transactional_id_pattern),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Rule(_subscribed_regex),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Rule(None, _members_regex),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Rule(_from_cursor, None, True),
    ApiKey.LIST_CONFIG_RESOURCES: Rule(None, _listed_config_resources),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Rule(_source_regexes),
}
"""The APIs that tenants may use, and their rules. APIs for brokers and for cluster administrators are not here."""
