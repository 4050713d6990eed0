"""JoinGroup, versions 0 to 9.

A member joins a classic group and waits for the end of the join phase. Follows `KafkaApis.handleJoinGroupRequest`
and `GroupMetadataManager.classicGroupJoin`.

- v0 has no rebalance timeout: the session timeout is used instead.
- From v4 a dynamic member without an id first gets one with the error MEMBER_ID_REQUIRED (KIP-394).
- Static members (KIP-345) from v5, the client's reason (KIP-800) from v8, `skip_assignment` (KIP-814) from v9.
- Before v7 a protocol name cannot be null, so an empty name takes its place.

Authorization: READ on the group.
"""

from __future__ import annotations

from klamm import Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from klamm_broker.groups.requests import JoinRequest, JoinResult
from klamm_broker.limits.owners import owner_of
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_VERSION_THAT_NEEDS_MEMBER_ID = 4
_FIRST_VERSION_WITH_NULL_PROTOCOL_NAME = 7
_FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


def join(broker: BrokerServices, request: JoinGroupRequest, context: RequestContext) -> Pending:
    """Join a group. The response is sent after the join phase. Runs on the processor's thread, so it must not block."""
    require_group(context, AclOperation.READ, request.group_id)
    broker.cluster.check_coordinates(request.group_id)
    version = context.api_version
    has_rebalance_timeout = version >= _FIRST_VERSION_WITH_REBALANCE_TIMEOUT

    def reply(result: JoinResult) -> None:
        protocol_name = result.protocol_name
        if protocol_name is None and version < _FIRST_VERSION_WITH_NULL_PROTOCOL_NAME:
            protocol_name = ""
        context.respond(
            JoinGroupResponse(
                error_code=result.error_code,
                generation_id=result.generation_id,
                protocol_type=result.protocol_type,
                protocol_name=protocol_name,
                leader=result.leader_id,
                skip_assignment=result.skip_assignment,
                member_id=result.member_id,
                members=[JoinGroupResponseMember(*member) for member in result.members],
            )
        )

    broker.groups.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=f"/{context.client_address.host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            requires_known_member_id=version >= _FIRST_VERSION_THAT_NEEDS_MEMBER_ID,
            supports_skipping_assignment=version >= _FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
            reason=request.reason or "not provided",
            owner=owner_of(context),
        ),
        reply,
    )
    return context.later()
