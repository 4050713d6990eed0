"""LeaveGroup, versions 0 to 5.

A member leaves, or (from v3) an administrator removes several members, and may name static members by instance id
alone. If the group becomes empty, the answer waits until this is durable. Follows
`GroupMetadataManager.classicGroupLeave`. Before v3 the member's error is the error of the request.

Authorization: READ on the group.
"""

from __future__ import annotations

from klamm import ErrorCode, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from klamm_broker.groups.requests import LeaveResult, LeavingMember
from klamm_broker.security.authorization import require_group
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_MANY_MEMBERS = 3


def leave(broker: BrokerServices, request: LeaveGroupRequest, context: RequestContext) -> Pending:
    """Remove members. Runs on the processor's thread, so it must not block."""
    require_group(context, AclOperation.READ, request.group_id)
    broker.cluster.check_coordinates(request.group_id)
    many = context.api_version >= _FIRST_VERSION_WITH_MANY_MEMBERS
    if many:
        leaving = [
            LeavingMember(each.member_id, each.group_instance_id, each.reason or "not provided")
            for each in request.members
        ]
    else:
        leaving = [LeavingMember(request.member_id)]

    def reply(result: LeaveResult) -> None:
        if many:
            members = [
                MemberResponse(each.member_id, each.group_instance_id, outcome)
                for each, outcome in zip(leaving, result.members, strict=False)
            ]
            context.respond(LeaveGroupResponse(error_code=result.error_code, members=members))
        elif result.error_code is ErrorCode.NONE:
            context.respond(LeaveGroupResponse(error_code=result.members[0]))
        else:
            context.respond(LeaveGroupResponse(error_code=result.error_code))

    broker.groups.leave(request.group_id, leaving, reply)
    return context.later()
