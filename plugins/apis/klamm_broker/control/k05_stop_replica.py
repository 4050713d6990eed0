"""StopReplica, versions 0 to 4: a node gives up replicas.

Follows `ReplicaManager.stopReplicas` of Kafka 3.9.

- Controller and broker epochs are checked as in LeaderAndIsr. A leader epoch below the partition's gets
  FENCED_LEADER_EPOCH.
- A deleted replica leaves the node; if the node was the leader, another replica leads. The records stay, because all
  replicas are one log. The last replica stays too, but does not lead.
- A request to stop a replica without deleting it changes nothing. A request for an unknown partition succeeds.

Authorization: CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from klamm import RequestContext, handles
from klamm.acl import AclOperation
from klamm.wire.messages import stop_replica
from klamm.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from klamm_broker.cluster.controlled_nodes import ControlledNode
from klamm_broker.security.authorization import require_cluster
from klamm_broker.topics.leadership import NO_LEADER_EPOCH


@handles(stop_replica, versions=range(0, 5))
def stop_replicas(node: ControlledNode, request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    """Remove replicas. Raises KafkaError."""
    require_cluster(context, AclOperation.CLUSTER_ACTION)
    node.check_broker_epoch(request.broker_epoch, from_kraft=request.is_k_raft_controller)
    without_epoch = (NO_LEADER_EPOCH, request.delete_partitions)
    orders = {(each.topic_name, each.partition_index): without_epoch for each in request.ungrouped_partitions}
    orders |= {(topic.name, index): without_epoch for topic in request.topics for index in topic.partition_indexes}
    orders |= {
        (topic.topic_name, each.partition_index): (each.leader_epoch, each.delete_partition)
        for topic in request.topic_states
        for each in topic.partition_states
    }
    results = node.stop_replicas(request.controller_epoch, orders)
    return StopReplicaResponse(
        partition_errors=[StopReplicaPartitionError(name, index, result) for (name, index), result in results.items()]
    )
