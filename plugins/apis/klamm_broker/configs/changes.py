"""Changing configs: AlterConfigs and IncrementalAlterConfigs call this for one resource at a time, on a handler's
thread, because a change waits for the store.

Follows Kafka's `ConfigAdminManager` and `ConfigurationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm_broker.configs.broker_keys import text_of, topic_key_of
from klamm_broker.configs.config_registry import (
    Operation,
    ResourceType,
    check_broker_name,
    check_topic_configs,
    is_list,
)
from klamm_broker.configs.loggers import check_levels, own_level, set_levels
from klamm_broker.configs.topic_config import TOPIC_CONFIGS
from klamm_broker.security.authorization import require_cluster, require_group, require_topic
from klamm_broker.services import BrokerServices
from klamm_broker.telemetry.subscriptions import parse
from klamm_broker.topics.names import check_topic_name

_MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


class Change(NamedTuple):
    """One operation on one config."""

    name: str
    operation: int
    value: str | None


class Resource(NamedTuple):
    """The owner of configs: type and name."""

    kind: int
    name: str


T = TypeVar("T")
R = TypeVar("R")

_OPERATIONS = frozenset(int(operation) for operation in Operation)


def for_each_resource(
    context: RequestContext,
    requests: Sequence[tuple[Resource, T]],
    change: Callable[[Resource, T], None],
    result: Callable[[int, str | None, int, str], R],
) -> list[R]:
    """Change each resource that the client may alter; a failure does not affect the others.

    Return for each resource what `result(error_code, error_message, resource_type, resource_name)` returns.
    """
    times = Counter(resource for resource, _ in requests)
    results = []
    for resource, wanted in {resource: (resource, wanted) for resource, wanted in requests}.values():
        try:
            if times[resource] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            _require(context, resource)
            change(resource, wanted)
            results.append(result(ErrorCode.NONE, None, *resource))
        except KafkaError as error:
            results.append(result(error.error_code, error.message, *resource))
    return results


def _require(context: RequestContext, resource: Resource) -> None:
    if resource.kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS):
        require_cluster(context, AclOperation.ALTER_CONFIGS)
    elif resource.kind == ResourceType.GROUP:
        require_group(context, AclOperation.ALTER_CONFIGS, resource.name)
    elif resource.kind == ResourceType.TOPIC:
        require_topic(context, AclOperation.ALTER_CONFIGS, resource.name)


def replace(
    broker: BrokerServices,
    context: RequestContext,
    resource: Resource,
    wanted: Iterable[tuple[str, str | None]],
    validate_only: bool,
) -> None:
    """Replace all configs of a resource. Raises KafkaError."""
    pairs = list(wanted)
    _check_duplicates(name for name, _ in pairs)
    values = {}
    for name, value in pairs:
        if value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has no value")
        values[name] = value
    with broker.configs.changing:
        before = _current(broker, resource)
        _apply_counted(broker, resource, before, values, validate_only)
        if not validate_only:
            _note(context, resource, values.keys(), before, values)


def alter(
    broker: BrokerServices,
    context: RequestContext,
    resource: Resource,
    changes: Sequence[Change],
    validate_only: bool,
) -> None:
    """Change some configs of a resource and leave the others. Raises KafkaError."""
    _check_duplicates(change.name for change in changes)
    for change in changes:
        if change.value is None and change.operation != Operation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value")
    if resource.kind == ResourceType.BROKER_LOGGER:
        _alter_loggers(broker, context, resource, changes, validate_only)
        return
    with broker.configs.changing:
        before = _current(broker, resource)
        values = dict(before)
        for change in changes:
            _alter_one(resource.kind, values, change)
        _apply_counted(broker, resource, before, values, validate_only)
        if not validate_only:
            _note(context, resource, (change.name for change in changes), before, values)


def _note(
    context: RequestContext,
    resource: Resource,
    asked: Iterable[str],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """Note the change of each config that the request names, and of each config that it removes without naming it."""
    kind = ResourceType(resource.kind).name
    for name in dict.fromkeys([*asked, *sorted(before.keys() - after.keys())]):
        context.note_change(kind, resource.name, name, before.get(name), after.get(name))


def _alter_loggers(
    broker: BrokerServices,
    context: RequestContext,
    resource: Resource,
    changes: Sequence[Change],
    validate_only: bool,
) -> None:
    if not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a broker's id must not be empty")
    check_broker_name(broker.cluster.node_id, resource.name)
    levels: list[tuple[str, str | None]] = []
    for change in changes:
        if change.operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"logger {change.name}: a level can only be set or deleted")
        levels.append((change.name, change.value if change.operation == Operation.SET else None))
    check_levels(levels)
    if not validate_only:
        before = {name: own_level(name) for name, _ in levels}
        set_levels(levels, context.listener.services.log_levels())
        for name, level in levels:
            context.note_change(ResourceType.BROKER_LOGGER.name, resource.name, name, before[name], level)


def _check_duplicates(names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"named more than once: {', '.join(twice)}")


def _alter_one(kind: int, values: dict[str, str], change: Change) -> None:
    name = change.name
    if change.operation == Operation.DELETE:
        values.pop(name, None)
        return
    if change.operation not in _OPERATIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no operation {change.operation}")
    assert change.value is not None
    if change.operation == Operation.SET:
        values[name] = change.value
        return
    operation = Operation(change.operation)
    if not _is_list(kind, name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{operation.name} applies to lists, and {name} is not a list")
    items = [item for item in _effective(kind, values, name).split(",") if item]
    # As in Kafka, an empty text is a list with one empty item. Few lists allow such an item.
    for item in change.value.rstrip(",").split(","):
        if operation is Operation.APPEND and item not in items:
            items.append(item)
        elif operation is Operation.SUBTRACT and item in items:
            items.remove(item)
    values[name] = ",".join(items)


def _is_list(kind: int, name: str) -> bool:
    if kind == ResourceType.CLIENT_METRICS:
        # Kafka does not know the types of these configs, so they can only be set and deleted.
        return False
    return is_list(topic_key_of(name) if kind == ResourceType.BROKER else name)


def _check_group(resource: Resource) -> None:
    if not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def _check_subscription(resource: Resource) -> None:
    if not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the name of a subscription must not be empty")


def _effective(kind: int, values: Mapping[str, str], name: str) -> str:
    """Return the list to which APPEND and SUBTRACT apply: the resource's own, or else Kafka's default."""
    if name in values:
        return values[name]
    return text_of(TOPIC_CONFIGS[topic_key_of(name) if kind == ResourceType.BROKER else name].default) or ""


def _current(broker: BrokerServices, resource: Resource) -> dict[str, str]:
    if resource.kind == ResourceType.BROKER:
        check_broker_name(broker.cluster.node_id, resource.name)
        return broker.configs.dynamic(resource.name)
    if resource.kind == ResourceType.GROUP:
        return broker.group_configs.own(resource.name)
    if resource.kind == ResourceType.CLIENT_METRICS:
        return broker.telemetry.configs.own(resource.name)
    _check_kind(resource)
    topic = broker.topics.get(resource.name)
    return dict(topic.overrides) if topic is not None else {}


def _check_min_insync_replicas(broker_name: str, current: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) if a single broker gets a value of its own. Only topics and the defaults of all
    brokers can have a value.
    """
    value = values.get(_MIN_INSYNC_REPLICAS)
    if broker_name and value is not None and value != current.get(_MIN_INSYNC_REPLICAS):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{_MIN_INSYNC_REPLICAS} can be changed for all brokers, not for one"
        )


def _apply_counted(
    broker: BrokerServices,
    resource: Resource,
    before: Mapping[str, str],
    values: Mapping[str, str],
    validate_only: bool,
) -> None:
    if validate_only or resource.kind == ResourceType.TOPIC:
        _apply(broker, resource, values, validate_only)
    else:
        with broker.config_account.changing(resource.name, before, values):
            _apply(broker, resource, values, validate_only)


def _apply(broker: BrokerServices, resource: Resource, values: Mapping[str, str], validate_only: bool) -> None:
    if resource.kind == ResourceType.BROKER:
        check_broker_name(broker.cluster.node_id, resource.name)
        broker.configs.check_names(resource.name, values)
        _check_min_insync_replicas(resource.name, broker.configs.dynamic(resource.name), values)
        try:
            broker.configs.check_dynamic(resource.name, values)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
        if not validate_only:
            broker.configs.set_dynamic(resource.name, values)
        return
    if resource.kind == ResourceType.GROUP:
        _check_group(resource)
        broker.group_configs.check(values)
        if not validate_only:
            broker.group_configs.replace(resource.name, values)
        return
    if resource.kind == ResourceType.CLIENT_METRICS:
        _check_subscription(resource)
        parse(values)
        if not validate_only:
            broker.telemetry.configs.replace(resource.name, values)
        return
    _check_kind(resource)
    if not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no common configs: a topic must be named")
    check_topic_name(resource.name)
    check_topic_configs(values)
    # Values that are valid by themselves may contradict each other.
    broker.configs.log_config(values)
    topic = broker.topics.get(resource.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.name}")
    if not validate_only:
        broker.topics.set_overrides(topic, values)


def _check_kind(resource: Resource) -> None:
    if resource.kind != ResourceType.TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resources of type {resource.kind} have no configs here")
