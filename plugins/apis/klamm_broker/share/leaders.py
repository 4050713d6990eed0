"""Names the leaders of partitions for a share request that reached another node (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm import ErrorCode

if TYPE_CHECKING:
    from klamm import RequestContext
    from klamm_broker.services import BrokerServices


def name_leaders(messages: Any, response: Any, broker: BrokerServices, context: RequestContext) -> None:
    """Add the leaders to a response of ShareFetch or ShareAcknowledge; `messages` is its module."""
    node_ids = set()
    for topic in response.responses:
        for data in topic.partitions:
            if data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                found = broker.topics.by_id(topic.topic_id)
                partition = found.partition(data.partition_index) if found is not None else None
                if partition is not None:
                    leader_id, epoch, _replicas = partition.leadership
                    data.current_leader = messages.LeaderIdAndEpoch(leader_id, epoch)
                    node_ids.add(leader_id)
    if node_ids:
        nodes = broker.cluster.endpoints_of(node_ids, context.listener)
        response.node_endpoints = [messages.NodeEndpoint(*node) for node in nodes]
