"""State changes by administrators and their tools: of topics, configurations, rights, users and so on.

Each function describes one API: it yields the resources that a request changes, with the results in the response.
`state_changes` calls them on the thread that serves the request, or on the writer's thread. To describe a further API,
add a function, or a line `ADMIN_CHANGES.read` if the fields of the request are enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from klamm.acl import AclOperation, AclPermission, PatternType
from klamm.sasl import ScramMechanism
from klamm.shared import client_quota_key
from klamm.wire.api_keys import ApiKey
from klamm_spark.requests.change_parts import Names, StateChanges, config_value, name_of, resource_of, succeeded
from klamm_spark.requests.resources import CONFIG_TYPES, ChangedAs, Resource, numbers

_CONFIG_OPERATIONS: Final = {0: "SET", 1: "DELETE", 2: "APPEND", 3: "SUBTRACT"}
_HASH_CHARACTERS: Final = 32
_ACL_TYPES: Final = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
_BINDING: Final = "pattern_type principal host operation permission"
_CONFIGURABLE: Final = " ".join(CONFIG_TYPES.values())
_SECURABLE: Final = " ".join(_ACL_TYPES.values())
_K = ApiKey

ADMIN_CHANGES: Final = StateChanges()
ADMIN_CHANGES.read(_K.DELETE_RECORDS, rows=("TOPIC topics.name offset.N=partitions.offset",))
ADMIN_CHANGES.read(_K.DELETE_GROUPS, rows=("GROUP groups_names",))
ADMIN_CHANGES.read(_K.OFFSET_DELETE, rows=("GROUP group_id", "TOPIC topics.name partitions=partitions.partition_index"))
ADMIN_CHANGES.read(
    _K.ALTER_SHARE_GROUP_OFFSETS, rows=("GROUP group_id", "TOPIC topics.topic_name offset.N=partitions.start_offset")
)
ADMIN_CHANGES.read(_K.DELETE_SHARE_GROUP_OFFSETS, rows=("GROUP group_id", "TOPIC topics.topic_name"))
ADMIN_CHANGES.read(_K.UNREGISTER_BROKER, rows=("BROKER broker_id",))
ADMIN_CHANGES.read(_K.UNREGISTER_CONTROLLER, rows=("CONTROLLER controller_id",))


# ---- topics and configurations


@ADMIN_CHANGES.of(
    _K.CREATE_TOPICS,
    types="TOPIC",
    attributes="partitions replication_factor topic_id replicas.N config.KEY validate_only",
)
def _create_topics(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    created = {topic.name: topic for topic in response.topics} if response is not None else {}
    for topic in request.topics:
        answer = created.get(topic.name)
        made = answer if answer is not None and answer.error_code == 0 else None
        resource = resource_of(
            "TOPIC",
            topic.name,
            partitions=made.num_partitions if made is not None and made.num_partitions > 0 else topic.num_partitions,
            replication_factor=topic.replication_factor,
            # Early versions of the response have no ids.
            topic_id=topics.id_text(made.topic_id) if made is not None and any(made.topic_id) else None,
            validate_only=request.validate_only or None,
        )
        for assigned in topic.assignments:
            resource.add(f"replicas.{assigned.partition_index}", ",".join(map(str, assigned.broker_ids)))
        for config in topic.configs:
            resource.add(f"config.{config.name}", config_value(config.name, config.value), "SET")
        yield resource


@ADMIN_CHANGES.of(_K.DELETE_TOPICS, types="TOPIC", attributes="topic_id")
def _delete_topics(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    named = {topic.topic_id: topic.name for topic in response.responses} if response is not None else {}
    for topic in request.topics:
        by_id = topic.name is None
        name = (named.get(topic.topic_id) or topics.name(topic.topic_id)) if by_id else topic.name
        yield resource_of("TOPIC", name, topic_id=topics.id_text(topic.topic_id) if by_id else None)
    for name in request.topic_names:
        yield Resource("TOPIC", name)


@ADMIN_CHANGES.of(_K.CREATE_PARTITIONS, types="TOPIC", attributes="partitions replicas.N validate_only")
def _create_partitions(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for topic in request.topics:
        resource = resource_of("TOPIC", topic.name, partitions=topic.count, validate_only=request.validate_only or None)
        for number, assigned in enumerate(topic.assignments or ()):
            resource.add(
                f"replicas.{topic.count - len(topic.assignments) + number}", ",".join(map(str, assigned.broker_ids))
            )
        yield resource


@ADMIN_CHANGES.of(
    _K.ALTER_CONFIGS, _K.INCREMENTAL_ALTER_CONFIGS, types=_CONFIGURABLE, attributes="config.KEY validate_only"
)
def _alter_configs(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    """Yield the resources with their configs. AlterConfigs sets all configs; IncrementalAlterConfigs has an operation
    for each.
    """
    for item in request.resources:
        kind = CONFIG_TYPES.get(item.resource_type, "UNKNOWN")
        resource = resource_of(kind, item.resource_name, validate_only=request.validate_only or None)
        resource.changed_as = ChangedAs(kind, item.resource_name, "config.")
        for config in item.configs:
            code = getattr(config, "config_operation", 0)
            operation = _CONFIG_OPERATIONS.get(code, str(code))
            resource.add(f"config.{config.name}", config_value(config.name, config.value), operation)
        yield resource


@ADMIN_CHANGES.of(_K.ELECT_LEADERS, types="TOPIC", attributes="partitions election_type")
def _elect_leaders(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    election = "UNCLEAN" if request.election_type else "PREFERRED"
    if request.topic_partitions is None:
        yield resource_of("TOPIC", "*", election_type=election)
    for topic in request.topic_partitions or ():
        yield resource_of("TOPIC", topic.topic, partitions=numbers(topic.partitions), election_type=election)


@ADMIN_CHANGES.of(_K.ALTER_PARTITION_REASSIGNMENTS, types="TOPIC", attributes="replicas.N")
def _reassign(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for topic in request.topics:
        resource = Resource("TOPIC", topic.name)
        for one in topic.partitions:
            cancels = one.replicas is None
            replicas = None if cancels else ",".join(map(str, one.replicas))
            resource.add(f"replicas.{one.partition_index}", replicas, "CANCEL" if cancels else "SET")
        yield resource


@ADMIN_CHANGES.of(_K.ALTER_REPLICA_LOG_DIRS, types="TOPIC", attributes="partitions path")
def _alter_log_dirs(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for folder in request.dirs:
        for topic in folder.topics:
            yield resource_of("TOPIC", topic.name, partitions=numbers(topic.partitions), path=folder.path)


@ADMIN_CHANGES.of(_K.UPDATE_FEATURES, types="FEATURE", attributes="max_version_level upgrade_type validate_only")
def _update_features(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for update in request.feature_updates:
        yield resource_of(
            "FEATURE",
            update.feature,
            max_version_level=update.max_version_level,
            upgrade_type=update.upgrade_type,
            validate_only=request.validate_only or None,
        )


# ---- rights, tokens, users, quotas


def _binding(type: int, name: str | None, pattern: int, principal: str | None, host: str | None, item: Any) -> Resource:
    return resource_of(
        _ACL_TYPES.get(type, "ANY"),
        "*" if name is None else name,
        pattern_type=name_of(PatternType, pattern),
        principal=principal,
        host=host,
        operation=name_of(AclOperation, item.operation),
        permission=name_of(AclPermission, item.permission_type),
    )


@ADMIN_CHANGES.of(_K.CREATE_ACLS, types=_SECURABLE, attributes=_BINDING)
def _create_acls(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    results = response.results if response is not None else ()
    for number, item in enumerate(request.creations):
        resource = _binding(
            item.resource_type, item.resource_name, item.resource_pattern_type, item.principal, item.host, item
        )
        if number < len(results):
            resource.error_code = results[number].error_code
        yield resource


@ADMIN_CHANGES.of(_K.DELETE_ACLS, types=f"{_SECURABLE} ANY", attributes=f"{_BINDING} binding")
def _delete_acls(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    """Yield the filters, and then the bindings that they have deleted."""
    results = response.filter_results if response is not None else ()
    for number, item in enumerate(request.filters):
        resource = _binding(
            item.resource_type_filter,
            item.resource_name_filter,
            item.pattern_type_filter,
            item.principal_filter,
            item.host_filter,
            item,
        )
        resource.add("binding", None, "FILTER")
        if number < len(results):
            resource.error_code = results[number].error_code
        yield resource
    for result in results:
        for item in result.matching_acls:
            resource = _binding(
                item.resource_type, item.resource_name, item.pattern_type, item.principal, item.host, item
            )
            resource.error_code = item.error_code
            resource.add("binding", None, "DELETE")
            yield resource


def token_hash(hmac: bytes) -> str:
    """Return a text in place of a delegation token's HMAC, which is a secret."""
    return hashlib.sha256(hmac).hexdigest()[:_HASH_CHARACTERS]


@ADMIN_CHANGES.of(
    _K.CREATE_DELEGATION_TOKEN,
    types="DELEGATION_TOKEN",
    attributes="owner renewer max_lifetime_ms expiry_timestamp_ms token_hash",
)
def _create_token(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    made = succeeded(response)
    owner = f"{request.owner_principal_type}:{request.owner_principal_name}" if request.owner_principal_name else None
    if made is not None:
        owner = f"{made.principal_type}:{made.principal_name}"
    resource = resource_of(
        "DELEGATION_TOKEN",
        made.token_id if made is not None else "",
        owner=owner,
        max_lifetime_ms=request.max_lifetime_ms,
        expiry_timestamp_ms=made.expiry_timestamp_ms if made is not None else None,
        token_hash=token_hash(bytes(made.hmac)) if made is not None else None,
    )
    for renewer in request.renewers:
        resource.add("renewer", f"{renewer.principal_type}:{renewer.principal_name}")
    yield resource


@ADMIN_CHANGES.of(
    _K.RENEW_DELEGATION_TOKEN,
    types="DELEGATION_TOKEN",
    attributes="token_hash renew_period_ms expiry_timestamp_ms",
)
def _renew_token(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _token(request, response, renew_period_ms=request.renew_period_ms)


@ADMIN_CHANGES.of(
    _K.EXPIRE_DELEGATION_TOKEN,
    types="DELEGATION_TOKEN",
    attributes="token_hash expiry_time_period_ms expiry_timestamp_ms",
)
def _expire_token(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    yield _token(request, response, expiry_time_period_ms=request.expiry_time_period_ms)


def _token(request: Any, response: Any, **period: int) -> Resource:
    made = succeeded(response)
    return resource_of(
        "DELEGATION_TOKEN",
        "",
        token_hash=token_hash(bytes(request.hmac)),
        **period,
        expiry_timestamp_ms=made.expiry_timestamp_ms if made is not None else None,
    )


@ADMIN_CHANGES.of(_K.ALTER_USER_SCRAM_CREDENTIALS, types="USER", attributes="mechanism iterations")
def _alter_users(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    for items, operation in ((request.deletions, "DELETE"), (request.upsertions, "UPSERT")):
        for item in items:
            resource = Resource("USER", item.name)
            mechanism = ScramMechanism.of_type(item.mechanism)
            if mechanism is not None:
                resource.changed_as = ChangedAs("SCRAM_CREDENTIAL", mechanism.row_key(item.name))
            name = mechanism.mechanism_name if mechanism is not None else item.mechanism
            resource.add("mechanism", name, operation)
            if operation == "UPSERT":
                resource.add("iterations", item.iterations)
            yield resource


@ADMIN_CHANGES.of(_K.ALTER_CLIENT_QUOTAS, types="USER CLIENT_ID IP", attributes="entity quota.KEY validate_only")
def _alter_quotas(request: Any, response: Any, topics: Names) -> Iterator[Resource]:
    """Yield a resource for each part of an entity (user, client id, address). Each has the whole entity as an
    attribute.
    """
    for entry in request.entries:
        whole = ",".join(f"{part.entity_type}={part.entity_name or '<default>'}" for part in entry.entity)
        changed_as = ChangedAs(
            "CLIENT_QUOTA", client_quota_key({part.entity_type: part.entity_name for part in entry.entity}), "quota."
        )
        for part in entry.entity:
            kind = part.entity_type.upper().replace("-", "_")
            resource = resource_of(
                kind, part.entity_name or "<default>", entity=whole, validate_only=request.validate_only or None
            )
            resource.changed_as = changed_as
            for op in entry.ops:
                resource.add(f"quota.{op.key}", None if op.remove else op.value, "DELETE" if op.remove else "SET")
            yield resource
