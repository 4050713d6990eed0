"""StreamsGroupTopologyDescriptionUpdate, version 0 (KIP-1331).

A Kafka broker without `group.streams.topology.description.plugin.class` keeps no descriptions and answers
UNSUPPORTED_VERSION. klamm does the same, and no heartbeat asks a member for a description. Follows
`KafkaApis.handleStreamsGroupTopologyDescriptionUpdate`.

Authorization: READ on the group.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from klamm_broker.handlers.k88_streams_group_heartbeat import require_streams_groups
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices


def refuse_description(
    broker: BrokerServices, request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Raise KafkaError: the server keeps no descriptions. Runs on the processor's thread, so it must not block."""
    require_streams_groups(broker)
    require_group(context, AclOperation.READ, request.group_id)
    raise KafkaError(
        ErrorCode.UNSUPPORTED_VERSION, "The broker has no streams group topology description plugin configured."
    )
