"""DeleteGroups, versions 0 to 3.

Deletes empty groups and their committed offsets; answered once the deletion is durable. Follows
`GroupCoordinatorShard.deleteGroups`: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. A group that is named twice has
one result, as in Kafka. From v3 on a result may have a message; these errors have none, as in Kafka.

Authorization: DELETE on each group.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm import ErrorCode, Pending, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from klamm_broker.security.authorization import may_group
from klamm_broker.services import BrokerServices


def delete(broker: BrokerServices, request: DeleteGroupsRequest, context: RequestContext) -> Pending:
    """Delete groups. Runs on the processor's thread, so it must not block."""
    names = list(dict.fromkeys(request.groups_names))

    def reply(outcomes: Mapping[str, ErrorCode]) -> None:
        results = [DeletableGroupResult(name, refused.get(name) or outcomes[name]) for name in names]
        context.respond(DeleteGroupsResponse(results=results))

    refused: dict[str, ErrorCode] = {}
    for name in names:
        if not may_group(context, AclOperation.DELETE, name):
            refused[name] = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif not broker.cluster.coordinates(name):
            refused[name] = ErrorCode.NOT_COORDINATOR
    broker.groups.administration.delete_groups([name for name in names if name not in refused], reply)
    return context.later()
