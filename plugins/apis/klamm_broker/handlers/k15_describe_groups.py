"""DescribeGroups, versions 0 to 6.

Describes classic groups and their members, from v3 with authorized operations. A group that does not exist, or is of
another type, has the state "Dead", from v6 with GROUP_ID_NOT_FOUND. Follows `GroupMetadataManager.describeGroups`.

Authorization: DESCRIBE on each group.
"""

from __future__ import annotations

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from klamm_broker.security.authorization import authorized_operations, may_group
from klamm_broker.services import BrokerServices

_FIRST_VERSION_WITH_NOT_FOUND = 6


def describe(broker: BrokerServices, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe groups. Runs on a request handler's thread."""
    response = DescribeGroupsResponse()
    answer_bytes = 0
    for group_id in request.groups:
        if not may_group(context, AclOperation.DESCRIBE, group_id):
            response.groups.append(DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id))
            continue
        answered = _describe_one(broker, group_id, context.api_version)
        if request.include_authorized_operations and not answered.error_code:
            answered.authorized_operations = authorized_operations(context, ResourceType.GROUP, group_id)
        response.groups.append(answered)
        answer_bytes += sum(_bytes_of(member) for member in answered.members)
        context.check_answer_bytes(answer_bytes)
    return response


def _bytes_of(member: DescribedGroupMember) -> int:
    """Return an upper bound of the encoded size of a member."""
    return len(member.member_id) + len(member.member_metadata) + len(member.member_assignment)


def _describe_one(broker: BrokerServices, group_id: str, api_version: int) -> DescribedGroup:
    if not broker.cluster.coordinates(group_id):
        return DescribedGroup(ErrorCode.NOT_COORDINATOR, group_id=group_id)
    described = broker.groups.administration.describe(group_id)
    if described is None:
        dead = DescribedGroup(group_id=group_id, group_state="Dead")
        if api_version >= _FIRST_VERSION_WITH_NOT_FOUND:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            there = broker.groups.administration.exists(group_id)
            dead.error_message = f"Group {group_id} {'is not a classic group' if there else 'not found'}."
        return dead
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol_name,
        members=[DescribedGroupMember(*member) for member in described.members],
    )
