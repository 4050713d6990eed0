"""Heartbeat, versions 0 to 4.

Keeps a member's session and tells it of a rebalance. Follows `GroupMetadataManager.classicGroupHeartbeat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import handles
from klamm.wire.messages import heartbeat
from klamm.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.broker import Broker


@handles(heartbeat, versions=range(0, 5), blocking=False)
def keep_session(broker: Broker, request: HeartbeatRequest, _context: RequestContext) -> HeartbeatResponse:
    """Keep the session."""
    return HeartbeatResponse(
        error_code=broker.groups.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    )
