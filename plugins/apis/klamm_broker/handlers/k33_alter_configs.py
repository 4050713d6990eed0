"""AlterConfigs, versions 0 to 2: replaces all configs of a resource by those of the request.

A resource is a topic, a group, a subscription to client metrics, this broker (named by its node id), or the defaults of
all brokers (an empty name). Changes are durable before the answer. They take effect at once, except changes of the
server's own settings, which take effect soon after the answer. Follows `ConfigAdminManager` and
`ConfigurationControlManager.legacyAlterConfigs`.

- An unknown config of a topic or a group or a bad value: INVALID_CONFIG.
- No such topic: UNKNOWN_TOPIC_OR_PARTITION; a name that no topic can have: INVALID_TOPIC_EXCEPTION, an empty one
  INVALID_REQUEST.
- A resource or a config named twice, a null value, another kind of resource, another broker: INVALID_REQUEST.

Deviation: a broker config that does not exist: INVALID_REQUEST.

Authorization: ALTER_CONFIGS on the topic, the group, or the cluster.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from klamm_broker.configs.changes import Resource, for_each_resource, replace
from klamm_broker.services import BrokerServices


def replace_configs(
    broker: BrokerServices, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    """Replace configs, or only validate the request. Runs on a request handler's thread."""
    responses = for_each_resource(
        context,
        [
            (Resource(each.resource_type, each.resource_name), [(config.name, config.value) for config in each.configs])
            for each in request.resources
        ],
        lambda resource, wanted: replace(broker, context, resource, wanted, request.validate_only),
        AlterConfigsResourceResponse,
    )
    return AlterConfigsResponse(responses=responses)
