"""The rewriting of responses that name nodes: clients get addresses of the gateway in place of the nodes' addresses.
The gateway notes the nodes of each response. A `ForwardedRequest` calls the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from klamm import Address, ErrorCode
from klamm.wire.api_keys import ApiKey
from klamm_gateway.layout import Cluster
from klamm_gateway.node_ports import NodePlaces


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """The addresses of the nodes for clients of one listener. `unreachable` is called for a node that has no port."""

    advertised: Address
    places: NodePlaces
    cluster: Cluster
    unreachable: Callable[[int], None]

    def address_of(self, node_id: int, host: str, port: int) -> Address | None:
        """Return the address that clients get for a node of a response; None if the node has no port here. `host` and
        `port` come from the response.
        """
        self.cluster.note_node(node_id, host, port)
        address = self.places.address_of(node_id, self.advertised)
        if address is None:
            self.unreachable(node_id)
        return address


Rewrite: TypeAlias = "Callable[[Any, NodeAddresses], bool]"
"""A function that changes a response. It returns False if the response names no node and stays unchanged."""


def _move(nodes: list[Any], id_field: str, addresses: NodeAddresses) -> list[Any]:
    """Return the nodes that clients can reach, with their addresses for these clients."""
    moved = []
    for node in nodes:
        address = addresses.address_of(getattr(node, id_field), node.host, node.port)
        if address is not None:
            node.host, node.port = address
            moved.append(node)
    return moved


def rewrite_metadata(response: Any, addresses: NodeAddresses) -> bool:
    """Rewrite the brokers of Metadata. Note the topic ids, for requests that name topics only by id."""
    response.brokers = _move(response.brokers, "node_id", addresses)
    for topic in response.topics:
        if topic.name and any(topic.topic_id):
            addresses.cluster.note_topic(topic.topic_id, topic.name)
    return True


def rewrite_describe_cluster(response: Any, addresses: NodeAddresses) -> bool:
    """Rewrite the brokers of DescribeCluster."""
    response.brokers = _move(response.brokers, "broker_id", addresses)
    return True


def rewrite_find_coordinator(response: Any, addresses: NodeAddresses) -> bool:
    """Rewrite the coordinators of FindCoordinator. An unreachable coordinator becomes COORDINATOR_NOT_AVAILABLE."""
    for found in (response, *response.coordinators):
        if found.error_code or not found.host:
            continue
        address = addresses.address_of(found.node_id, found.host, found.port)
        if address is None:
            found.error_code, found.node_id = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), -1
            found.host, found.port = "", -1
        else:
            found.host, found.port = address
    return True


def rewrite_node_endpoints(response: Any, addresses: NodeAddresses) -> bool:
    """Rewrite the new leaders of partitions in Produce, ShareFetch and ShareAcknowledge (KIP-951)."""
    if not response.node_endpoints:
        return False
    response.node_endpoints = _move(response.node_endpoints, "node_id", addresses)
    return True


REWRITES: Final[dict[int, tuple[int, Rewrite]]] = {
    ApiKey.METADATA: (0, rewrite_metadata),
    ApiKey.FIND_COORDINATOR: (0, rewrite_find_coordinator),
    ApiKey.DESCRIBE_CLUSTER: (0, rewrite_describe_cluster),
    ApiKey.PRODUCE: (10, rewrite_node_endpoints),
    ApiKey.SHARE_FETCH: (0, rewrite_node_endpoints),
    ApiKey.SHARE_ACKNOWLEDGE: (0, rewrite_node_endpoints),
}
"""The first version of each API that names nodes, and the function that rewrites the API's responses."""
