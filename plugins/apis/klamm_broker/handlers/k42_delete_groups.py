"""DeleteGroups, versions 0 to 2.

Deletes empty groups and their committed offsets; answered once that is durable. Follows
`GroupCoordinatorShard.deleteGroups`: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.

Asked of the authorizer: DELETE on each group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm import ErrorCode, handles
from klamm.acl import AclOperation
from klamm.wire.messages import delete_groups
from klamm.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from klamm_broker.security.authorization import may_group

if TYPE_CHECKING:
    from klamm import Pending, RequestContext
    from klamm_broker.services import BrokerServices


@handles(delete_groups, versions=range(0, 3), blocking=False)
def delete(broker: BrokerServices, request: DeleteGroupsRequest, context: RequestContext) -> Pending:
    """Delete groups."""

    denied = [name for name in request.groups_names if not may_group(context, AclOperation.DELETE, name)]
    results = [DeletableGroupResult(name, ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in denied]

    def reply(outcomes: Mapping[str, ErrorCode]) -> None:
        deleted = [DeletableGroupResult(group_id, outcome) for group_id, outcome in outcomes.items()]
        context.respond(DeleteGroupsResponse(results=results + deleted))

    broker.groups.delete_groups([name for name in request.groups_names if name not in denied], reply)
    return context.later()
