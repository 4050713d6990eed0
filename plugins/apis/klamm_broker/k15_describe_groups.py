"""DescribeGroups, versions 0 to 6.

Tells of classic groups and their members. Follows `GroupMetadataManager.describeGroups`: a group that does not exist
is "Dead", from v6 with GROUP_ID_NOT_FOUND. Authorized operations (v3) are all that a group has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, handles
from klamm.wire.messages import describe_groups
from klamm.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.broker import Broker

_FIRST_VERSION_WITH_NOT_FOUND = 6

_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11
_ALL_OPERATIONS = sum(1 << code for code in (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS))
"""Bits of `AclOperation` codes that the resource type GROUP has."""


@handles(describe_groups, versions=range(0, 7))
def describe(broker: Broker, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Tell of groups."""
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        answered = _describe_one(broker, group_id, context.api_version)
        if request.include_authorized_operations and not answered.error_code:
            answered.authorized_operations = _ALL_OPERATIONS
        response.groups.append(answered)
    return response


def _describe_one(broker: Broker, group_id: str, api_version: int) -> DescribedGroup:
    described = broker.groups.describe(group_id)
    if described is None:
        dead = DescribedGroup(group_id=group_id, group_state="Dead")
        if api_version >= _FIRST_VERSION_WITH_NOT_FOUND:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            dead.error_message = f"Group {group_id} not found."
        return dead
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_name,
        members=[
            DescribedGroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in described.members
        ],
    )
