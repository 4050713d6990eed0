"""DeleteGroups, versions 0 to 2.

Deletes empty groups and their committed offsets; answered once that is durable. Follows
`GroupCoordinatorShard.deleteGroups`: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm import ErrorCode, handles
from klamm.wire.messages import delete_groups
from klamm.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from klamm import Pending, RequestContext
    from klamm_broker.broker import Broker


@handles(delete_groups, versions=range(0, 3), blocking=False)
def delete(broker: Broker, request: DeleteGroupsRequest, context: RequestContext) -> Pending:
    """Delete groups."""

    def reply(outcomes: Mapping[str, ErrorCode]) -> None:
        results = [DeletableGroupResult(group_id, outcome) for group_id, outcome in outcomes.items()]
        context.respond(DeleteGroupsResponse(results=results))

    broker.groups.delete_groups(request.groups_names, reply)
    return context.later()
