"""ListConfigResources, versions 0 and 1: the resources that DescribeConfigs can describe.

Follows `KafkaApis.handleListConfigResources`. Version 0 lists subscriptions to client metrics; from version 1 on the
request names the types, an empty list means all. Only groups with configs are listed. An unknown type:
UNSUPPORTED_VERSION.

Authorization: DESCRIBE_CONFIGS on the cluster.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from klamm_broker.configs.config_registry import ResourceType
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_TYPES = 1


def config_resources(
    broker: BrokerServices, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources that have configs. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.DESCRIBE_CONFIGS)
    if context.api_version < _FIRST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse(config_resources=_client_metrics(broker))
    wanted = set(request.resource_types) or set(ResourceType)
    if not wanted <= set(ResourceType):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    resources = [
        ConfigResource(str(node_id), kind)
        for kind in (ResourceType.BROKER_LOGGER, ResourceType.BROKER)
        if kind in wanted
        for node_id in broker.cluster.node_ids
    ]
    if ResourceType.TOPIC in wanted:
        # There are at most as many topics as partitions.
        context.expect_answer(broker.topics.partition_count)
        resources += [ConfigResource(topic.name, ResourceType.TOPIC) for topic in broker.topics.all()]
    if ResourceType.GROUP in wanted:
        resources += [ConfigResource(group_id, ResourceType.GROUP) for group_id in broker.group_configs.group_ids()]
    if ResourceType.CLIENT_METRICS in wanted:
        resources += _client_metrics(broker)
    return ListConfigResourcesResponse(config_resources=resources)


def _client_metrics(broker: BrokerServices) -> list[ConfigResource]:
    return [ConfigResource(name, ResourceType.CLIENT_METRICS) for name in broker.telemetry.configs.names()]
