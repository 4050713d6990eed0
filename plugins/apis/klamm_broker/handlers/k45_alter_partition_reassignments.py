"""AlterPartitionReassignments, versions 0 and 1: a single broker cannot move a partition.

Follows `ReplicationControlManager.alterPartitionReassignments`.

- Assigned to this node: no change and no error. To no node, another, or one twice: INVALID_REPLICA_ASSIGNMENT.
- A reassignment to be cancelled (null): NO_REASSIGNMENT_IN_PROGRESS.
- No such partition: UNKNOWN_TOPIC_OR_PARTITION.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError, handles
from klamm.acl import AclOperation
from klamm.wire.messages import alter_partition_reassignments
from klamm.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.topics.replica_assignment import check_replicas

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices


@handles(alter_partition_reassignments, versions=range(0, 2), blocking=False)
def reassign(
    broker: BrokerServices, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Check the assignments, of which none can change anything. Raises KafkaError."""
    require_cluster(context, AclOperation.ALTER)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(wanted.name, [_checked(broker, wanted.name, each) for each in wanted.partitions])
            for wanted in request.topics
        ],
    )


def _checked(broker: BrokerServices, name: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    index = wanted.partition_index
    topic = broker.topics.get(name)
    try:
        if topic is None or topic.partition(index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        if wanted.replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        check_replicas(wanted.replicas, broker.cluster.node_id)
    except KafkaError as error:
        return ReassignablePartitionResponse(index, error.error_code, error.message)
    return ReassignablePartitionResponse(index, error_message=None)
