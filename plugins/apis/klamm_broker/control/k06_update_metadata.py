"""UpdateMetadata, versions 0 to 8: sets the partition metadata that a node reports to clients.

Follows `ReplicaManager.maybeUpdateMetadataCache` of Kafka 3.9.

- Controller and broker epochs are checked as in LeaderAndIsr.
- Nodes report their real state, and the request can change this state. A partition for which the request has a higher
  leader epoch changes as with LeaderAndIsr. The node ignores all other partitions of the request.
- The list of live brokers is ignored: clients get the addresses of the running nodes.

Authorization: CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from klamm import RequestContext, handles
from klamm.acl import AclOperation
from klamm.wire.messages import update_metadata as messages
from klamm.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from klamm_broker.cluster.controlled_nodes import ControlledNode, PartitionOrder
from klamm_broker.security.authorization import require_cluster
from klamm_broker.topics.leadership import Leadership


@handles(messages, versions=range(0, 9))
def update_metadata(
    node: ControlledNode, request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse:
    """Apply leaderships. Raises KafkaError."""
    require_cluster(context, AclOperation.CLUSTER_ACTION)
    node.check_broker_epoch(request.broker_epoch, from_kraft=request.is_k_raft_controller)
    states = [(each.topic_name, each) for each in request.ungrouped_partition_states]
    states += [(topic.topic_name, each) for topic in request.topic_states for each in topic.partition_states]
    node.update_metadata(
        request.controller_epoch,
        [
            PartitionOrder(
                name, each.partition_index, bytes(16), Leadership(each.leader, each.leader_epoch, tuple(each.replicas))
            )
            for name, each in states
        ],
    )
    return UpdateMetadataResponse()
