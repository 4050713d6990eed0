"""ListConfigResources, versions 0 and 1: the resources that DescribeConfigs can describe.

Follows `KafkaApis.handleListConfigResources`. Version 0 lists subscriptions to client metrics, of which there are none;
from version 1 on the request names the types, an empty list means all. Groups are listed only where they have configs,
and here they have none. A type that does not exist: UNSUPPORTED_VERSION.

Authorization: DESCRIBE_CONFIGS on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.acl import AclOperation
from klamm.wire.messages import list_config_resources
from klamm.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from klamm_broker.configs.registry import ResourceType
from klamm_broker.security.authorization import require_cluster

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_TYPES = 1


@handles(list_config_resources, versions=range(0, 2), blocking=False)
def config_resources(
    broker: BrokerServices, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources that have configs. Raises KafkaError."""
    require_cluster(context, AclOperation.DESCRIBE_CONFIGS)
    if context.api_version < _FIRST_VERSION_WITH_TYPES:
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or set(ResourceType)
    if not wanted <= set(ResourceType):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    resources = [
        ConfigResource(str(broker.node_id), kind)
        for kind in (ResourceType.BROKER_LOGGER, ResourceType.BROKER)
        if kind in wanted
    ]
    if ResourceType.TOPIC in wanted:
        resources += [ConfigResource(topic.name, ResourceType.TOPIC) for topic in broker.topics.all()]
    return ListConfigResourcesResponse(config_resources=resources)
