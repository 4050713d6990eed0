"""AlterPartitionReassignments, versions 0 and 1: sets the nodes that have the replicas of a partition.

The change takes no time, because all replicas share one log. If the leader is not among the new replicas, the first of
these leads.

Follows `ReplicationControlManager.alterPartitionReassignments`.

- No node, a node that is not running, or the same node twice: INVALID_REPLICA_ASSIGNMENT.
- The cancellation of a reassignment (null): NO_REASSIGNMENT_IN_PROGRESS.
- No such partition: UNKNOWN_TOPIC_OR_PARTITION.

Authorization: ALTER on the cluster.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices


def reassign(
    broker: BrokerServices, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Change replicas. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.ALTER)
    return AlterPartitionReassignmentsResponse(
        # If no topics are named, Kafka answers without a look at the rest of the request.
        allow_replication_factor_change=request.allow_replication_factor_change or not request.topics,
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
        partition = topic.partition(index) if topic is not None else None
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        if wanted.replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        broker.topics.placement.check_replicas(wanted.replicas)
        broker.elections.reassign(partition, wanted.replicas)
    except KafkaError as error:
        return ReassignablePartitionResponse(index, error.error_code, error.message)
    return ReassignablePartitionResponse(index, error_message=None)
