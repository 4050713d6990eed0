"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): set, delete, append to or subtract from single configs.

A resource is a topic, a group, a subscription to client metrics, this broker (named by its node id), the defaults of
all brokers (an empty name), or the loggers of this broker (named by its node id). Changes are durable, except levels of
loggers. They take effect at once, except changes of the server's own settings, which take effect soon after the answer.
Follows `ConfigAdminManager` and `ConfigurationControlManager.incrementalAlterConfigs`.

- An unknown logger or level: INVALID_CONFIG; a list operation on a logger, a deletion of the root level:
  INVALID_REQUEST.
- An unknown config of a topic or a group, a bad value, a list operation on a config that is not a list: INVALID_CONFIG.
- No such topic: UNKNOWN_TOPIC_OR_PARTITION; a name that no topic can have: INVALID_TOPIC_EXCEPTION, an empty one
  INVALID_REQUEST.
- A resource or a config named twice, a null value, another kind of resource, another broker: INVALID_REQUEST.

Deviation: a broker config that does not exist: INVALID_REQUEST.

Authorization: ALTER_CONFIGS on the topic, the group, or the cluster.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm_broker.configs.changes import Change, Resource, alter, for_each_resource
from klamm_broker.services import BrokerServices


def alter_some_configs(
    broker: BrokerServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change configs, or only validate the request. Runs on a request handler's thread."""
    responses = for_each_resource(
        context,
        [
            (
                Resource(each.resource_type, each.resource_name),
                [Change(config.name, config.config_operation, config.value) for config in each.configs],
            )
            for each in request.resources
        ],
        lambda resource, changes: alter(broker, context, resource, changes, request.validate_only),
        AlterConfigsResourceResponse,
    )
    return IncrementalAlterConfigsResponse(responses=responses)
