"""ListPartitionReassignments, version 0: the list is always empty because a reassignment takes no time.

Follows `ReplicationControlManager.listPartitionReassignments`.

Authorization: DESCRIBE on the cluster.
"""

from __future__ import annotations

from klamm import RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices


def list_reassignments(
    _broker: BrokerServices, _request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Return an empty list. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.DESCRIBE)
    return ListPartitionReassignmentsResponse(error_message=None)
