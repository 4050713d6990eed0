"""DescribeQuorum, versions 0 to 2: the running nodes are the voters, and the controller leads.

Follows `KafkaRaftClient.handleDescribeQuorumRequest`. A request for anything other than exactly partition 0 of
`__cluster_metadata` gets UNKNOWN_TOPIC_OR_PARTITION for each partition.

Deviation: there is no metadata log, so its offsets are 0. The controller's listener is the listener of the request.

Authorization: DESCRIBE on the cluster.
"""

from __future__ import annotations

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation
from klamm.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from klamm_broker.security.authorization import require_cluster
from klamm_broker.services import BrokerServices
from klamm_broker.topics.topic_registry import KRAFT_METADATA_TOPIC

_FIRST_VERSION_WITH_TIMES = 1
_FIRST_VERSION_WITH_NODES = 2
_QUORUM_EPOCH = 0


def quorum(broker: BrokerServices, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describe the quorum. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    require_cluster(context, AclOperation.DESCRIBE)
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(KRAFT_METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            topics=[
                ResponseTopicData(
                    topic.topic_name,
                    [
                        ResponsePartitionData(
                            each.partition_index,
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            f"only {KRAFT_METADATA_TOPIC}-0 has a quorum",
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    cluster = broker.cluster
    voters = [ReplicaState(node_id) for node_id in cluster.node_ids]
    if context.api_version >= _FIRST_VERSION_WITH_TIMES:
        for voter in voters:
            voter.last_fetch_timestamp = voter.last_caught_up_timestamp = broker.clock.wall_ms()
    leader = ResponsePartitionData(
        0, leader_id=cluster.controller_id, leader_epoch=_QUORUM_EPOCH, current_voters=voters
    )
    response = DescribeQuorumResponse(topics=[ResponseTopicData(KRAFT_METADATA_TOPIC, [leader])])
    if context.api_version >= _FIRST_VERSION_WITH_NODES:
        response.nodes = [
            Node(node.node_id, [Listener(context.listener.name.upper(), node.host, node.port)])
            for node in cluster.endpoints(context.listener)
        ]
    return response
