"""LeaderAndIsr, versions 0 to 7: sets the leaders, epochs and replicas of partitions.

Follows `ReplicaManager.becomeLeaderOrFollower` of Kafka 3.9.

- A controller epoch below the highest one seen: STALE_CONTROLLER_EPOCH for the whole request. A broker epoch below the
  node's: STALE_BROKER_EPOCH for the whole request. A KRaft controller must name exactly the node's epoch.
- A leader epoch that is not higher than the partition's: STALE_CONTROLLER_EPOCH. A partition that does not exist, or
  whose new replicas do not include this node: UNKNOWN_TOPIC_OR_PARTITION. Another topic id: INCONSISTENT_TOPIC_ID.
- All nodes share one leadership of a partition, so clients see a change at every node at once. In Kafka, each broker
  needs a request of its own. Here the request to a second node succeeds too, although it changes nothing more.
- The request does not create topics. Replicas on running nodes are in sync; `isr` and replicas on unknown nodes are
  ignored. If the leader is not running or has no replica, the partition has no leader.

Authorization: CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from klamm import RequestContext, handles
from klamm.acl import AclOperation
from klamm.wire.messages import leader_and_isr
from klamm.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from klamm_broker.cluster.controlled_nodes import ControlledNode, PartitionOrder
from klamm_broker.security.authorization import require_cluster
from klamm_broker.topics.leadership import Leadership

_FIRST_VERSION_BY_TOPIC_ID = 5


@handles(leader_and_isr, versions=range(0, 8))
def become_leader_or_follower(
    node: ControlledNode, request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    """Apply leaderships. Raises KafkaError."""
    require_cluster(context, AclOperation.CLUSTER_ACTION)
    node.check_broker_epoch(request.broker_epoch, from_kraft=request.is_k_raft_controller)
    states = [(each.topic_name, bytes(16), each) for each in request.ungrouped_partition_states]
    states += [
        (topic.topic_name, topic.topic_id, each) for topic in request.topic_states for each in topic.partition_states
    ]
    orders = [
        PartitionOrder(
            name, each.partition_index, topic_id, Leadership(each.leader, each.leader_epoch, tuple(each.replicas))
        )
        for name, topic_id, each in states
    ]
    results = node.lead(request.controller_epoch, orders)
    if context.api_version < _FIRST_VERSION_BY_TOPIC_ID:
        return LeaderAndIsrResponse(
            partition_errors=[
                LeaderAndIsrPartitionError(order.topic, order.partition, result)
                for order, result in zip(orders, results, strict=True)
            ]
        )
    topics: dict[bytes, LeaderAndIsrTopicError] = {}
    for order, result in zip(orders, results, strict=True):
        topic = topics.setdefault(order.topic_id, LeaderAndIsrTopicError(order.topic_id))
        topic.partition_errors.append(LeaderAndIsrPartitionError(partition_index=order.partition, error_code=result))
    return LeaderAndIsrResponse(topics=[*topics.values()])
