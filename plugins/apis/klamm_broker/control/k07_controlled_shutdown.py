"""ControlledShutdown, versions 0 to 3: a node that is about to stop leaves its partitions to others.

Follows `KafkaController.doControlledShutdown` of Kafka 3.9.

- The node keeps running until it is stopped by other means. Partitions with one replica keep their leader. Partitions
  whose other replicas are not running are returned as remaining.
- NOT_CONTROLLER: the request was sent to a node other than the controller. BROKER_NOT_AVAILABLE: the node is not
  running. STALE_BROKER_EPOCH: the broker epoch is below the node's.

Authorization: CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from klamm import RequestContext, handles
from klamm.acl import AclOperation
from klamm.wire.messages import controlled_shutdown
from klamm.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from klamm_broker.cluster.controlled_nodes import ControlledNode
from klamm_broker.security.authorization import require_cluster


@handles(controlled_shutdown, versions=range(0, 4))
def shut_down(
    node: ControlledNode, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    """Move leaders. Raises KafkaError."""
    require_cluster(context, AclOperation.CLUSTER_ACTION)
    remaining = node.shut_down(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(each.topic.name, each.index) for each in remaining]
    )
