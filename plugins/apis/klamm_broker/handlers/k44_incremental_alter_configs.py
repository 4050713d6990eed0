"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339): set, delete, append to or subtract from single configs.

Topics, this broker (by node id) and the defaults of all brokers (an empty name). Changes are durable and take effect
at once. Follows `ConfigAdminManager` and `ConfigurationControlManager.incrementalAlterConfigs`.

- An unknown topic config, a bad value, a list operation on a config that is not a list: INVALID_CONFIG.
- No such topic: UNKNOWN_TOPIC_OR_PARTITION; a name that no topic can have: INVALID_TOPIC_EXCEPTION, an empty one
  INVALID_REQUEST.
- A resource or a config named twice, a null value, another kind of resource, another broker: INVALID_REQUEST.

Deviation: of the broker's configs only those that topics inherit are dynamic; others: INVALID_REQUEST.

Authorization: ALTER_CONFIGS on the topic, the group, or the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import handles
from klamm.wire.messages import incremental_alter_configs
from klamm.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from klamm_broker.configs.changes import Change, Resource, alter, for_each_resource

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices


@handles(incremental_alter_configs, versions=range(0, 2))
def alter_some_configs(
    broker: BrokerServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change configs, or only validate the request."""
    outcomes = for_each_resource(
        context,
        [
            (
                Resource(each.resource_type, each.resource_name),
                [Change(config.name, config.config_operation, config.value) for config in each.configs],
            )
            for each in request.resources
        ],
        lambda resource, changes: alter(broker, resource, changes, request.validate_only),
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                outcome.error_code, outcome.error_message, outcome.resource.kind, outcome.resource.name
            )
            for outcome in outcomes
        ]
    )
