"""SyncGroup, versions 0 to 5.

The leader sends the assignments, and each member gets its own once they are durable. Follows
`KafkaApis.handleSyncGroupRequest` and `GroupMetadataManager.classicGroupSync`. From v5 the protocol's type and name are
mandatory: without them INCONSISTENT_GROUP_PROTOCOL.

Authorization: READ on the group.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from klamm_broker.groups.requests import SyncRequest, SyncResult
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_PROTOCOL = 5


def sync(broker: BrokerServices, request: SyncGroupRequest, context: RequestContext) -> Pending:
    """Answer once the assignment is durable. Runs on the processor's thread, so it must not block.

    Raises KafkaError if the protocol is missing or the client may not read the group.
    """
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    require_group(context, AclOperation.READ, request.group_id)
    broker.cluster.check_coordinates(request.group_id)

    def reply(result: SyncResult) -> None:
        context.respond(
            SyncGroupResponse(
                error_code=result.error_code,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    broker.groups.sync(
        SyncRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: bytes(each.assignment) for each in request.assignments},
        ),
        reply,
    )
    return context.later()
