"""Heartbeat, versions 0 to 4.

Keeps a member's session alive and reports a rebalance. Follows `GroupMetadataManager.classicGroupHeartbeat`.

Authorization: READ on the group.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices


def keep_session(broker: BrokerServices, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Keep the member's session alive. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_group(context, AclOperation.READ, request.group_id)
    broker.cluster.check_coordinates(request.group_id)
    return HeartbeatResponse(
        error_code=broker.groups.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    )
