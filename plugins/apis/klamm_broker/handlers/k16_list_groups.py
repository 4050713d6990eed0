"""ListGroups, versions 0 to 5.

Lists groups, from v4 filtered by state, from v5 by type; case is ignored. Follows `GroupMetadataManager.listGroups`.
Types are "classic", "consumer", "share" and "streams".

Authorization: DESCRIBE on the cluster; without it, only the groups that the client may DESCRIBE are listed.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.acl import AclOperation, ResourceType
from klamm.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from klamm_broker.security.authorization import may_cluster, shows
from klamm_broker.services import BrokerServices


def list_all(broker: BrokerServices, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List groups. Runs on a request handler's thread."""
    every = may_cluster(context, AclOperation.DESCRIBE, log_if_denied=False)
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state, group.group_type)
            for group in broker.groups.administration.list_groups(request.states_filter, request.types_filter)
            if broker.cluster.coordinates(group.group_id)
            and (every or shows(context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ]
    )
