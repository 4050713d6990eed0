"""DescribeCluster, versions 0 to 2.

Describes the running nodes, with the addresses that the request's listener advertises; the first is the controller.
Follows `AuthHelper.computeDescribeClusterResponse`. Endpoint type 2 (controller), which another listener serves in
Kafka: MISMATCHED_ENDPOINT_TYPE. A type other than 1 (broker) and 2: UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from klamm import ErrorCode, KafkaError, RequestContext
from klamm.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from klamm_broker.security.authorization import NOT_REQUESTED, cluster_operations
from klamm_broker.services import BrokerServices

_BROKERS, _CONTROLLERS = 1, 2


def cluster(
    broker: BrokerServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Describe the cluster. Raises KafkaError. Runs on the processor's thread, so it must not block."""
    if request.endpoint_type == _CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is the endpoint of a broker, not of a controller")
    if request.endpoint_type != _BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
    nodes = broker.cluster.endpoints(context.listener)
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster.controller_id,
        brokers=[DescribeClusterBroker(*node) for node in nodes],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
