"""DescribeConfigs, versions 1 to 4.

Describes the configs of topics, groups, this node (by its id) and the dynamic defaults of all brokers (an empty name):
values, sources, synonyms, types and documentation. Also describes the loggers of this broker and their levels. No list
of keys, or an empty one, means all keys. Follows `ConfigHelper.describeConfigs`.

- No such topic: UNKNOWN_TOPIC_OR_PARTITION; an invalid topic name: INVALID_TOPIC_EXCEPTION.
- Another broker, an empty name of a group or of a client metrics subscription: INVALID_REQUEST.
- Another resource type: INVALID_REQUEST for all resources.
- An answer larger than `response_max_bytes`: INVALID_REQUEST.

Deviation: brokers and groups have only those of Kafka's configs that klamm supports.

Authorization: DESCRIBE_CONFIGS on the topic, the group, or the cluster.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from klamm import ErrorCode, KafkaError, RequestContext, clipped
from klamm.acl import AclOperation
from klamm.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from klamm_broker.configs.config_registry import ConfigEntry, ConfigSource, ResourceType, check_broker_name
from klamm_broker.configs.loggers import LEVELS, logger_levels
from klamm_broker.configs.topic_config import ConfigType
from klamm_broker.security.authorization import require_cluster, require_group, require_topic
from klamm_broker.services import BrokerServices
from klamm_broker.topics.names import check_topic_name

_TYPES: Final = frozenset(ResourceType)
_LEVEL_DOC: Final = f"Lowest level of log lines that this logger writes: {', '.join(LEVELS.values())}."
_ELEMENTS_PER_CONFIG: Final = 3
"""The time to encode a config with its synonyms and documentation, counted in elements of other responses."""


def configs_of_resources(
    broker: BrokerServices, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe configs, per resource. Raises KafkaError for a resource type that does not exist. Runs on a request
    handler's thread.
    """
    for resource in request.resources:
        if resource.resource_type not in _TYPES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected resource type {resource.resource_type} for resource {clipped(resource.resource_name)}",
            )
    results = []
    # Topics with equal overrides, and resources that are named twice, have the same configs: described once.
    known: dict[Hashable, tuple[list[DescribeConfigsResourceResult], int]] = {}
    answer_bytes = answer_configs = 0
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            _require(context, resource)
            key = _key(broker, resource)
            if key not in known:
                configs = [_result(entry, request) for entry in _entries(broker, resource)]
                known[key] = configs, sum(map(_text_bytes, configs))
            result.configs, size_bytes = known[key]
            answer_bytes += size_bytes
            answer_configs += len(result.configs)
        except KafkaError as error:
            result.error_code, result.error_message = error.error_code, error.message or ""
        results.append(result)
        context.check_answer_bytes(answer_bytes)
        context.expect_answer(answer_configs * _ELEMENTS_PER_CONFIG)
    return DescribeConfigsResponse(results=results)


def _key(broker: BrokerServices, resource: DescribeConfigsResource) -> Hashable:
    """Return a key that is equal for two resources only if they have the same configs."""
    keys = tuple(resource.configuration_keys or ())
    if resource.resource_type == ResourceType.TOPIC:
        topic = broker.topics.get(resource.resource_name)
        if topic is not None:
            return resource.resource_type, frozenset(topic.overrides.items()), keys
    return resource.resource_type, resource.resource_name, keys


def _text_bytes(config: DescribeConfigsResourceResult) -> int:
    """Return an upper bound of the encoded size of a config."""
    texts = (config.name, config.value, config.documentation)
    synonyms = sum(len(synonym.name) + len(synonym.value or "") for synonym in config.synonyms)
    return synonyms + sum(len(text) for text in texts if text is not None)


def _require(context: RequestContext, resource: DescribeConfigsResource) -> None:
    if resource.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS):
        require_cluster(context, AclOperation.DESCRIBE_CONFIGS)
    elif resource.resource_type == ResourceType.GROUP:
        require_group(context, AclOperation.DESCRIBE_CONFIGS, resource.resource_name)
    else:
        require_topic(context, AclOperation.DESCRIBE_CONFIGS, resource.resource_name)


def _entries(broker: BrokerServices, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    names = resource.configuration_keys
    if resource.resource_type == ResourceType.BROKER:
        return broker.configs.describe_broker(broker.cluster.node_id, resource.resource_name, names)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        if not resource.resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a broker's id must not be empty")
        check_broker_name(broker.cluster.node_id, resource.resource_name)
        return [
            ConfigEntry(
                name, level, ConfigType.UNKNOWN, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, False, (), _LEVEL_DOC
            )
            for name, level in logger_levels()
            if not names or name in names
        ]
    if resource.resource_type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        if not resource.resource_name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the name must not be empty")
        if resource.resource_type == ResourceType.CLIENT_METRICS:
            return broker.telemetry.configs.describe(resource.resource_name, names)
        return broker.group_configs.describe(resource.resource_name, names, broker.configs.synonyms)
    check_topic_name(resource.resource_name)
    topic = broker.topics.get(resource.resource_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return broker.configs.describe_topic(topic.overrides, names)


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[DescribeConfigsSynonym(*synonym) for synonym in entry.synonyms] if request.include_synonyms else [],
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )
