"""The nodes of a cluster, what each leads and coordinates, and what a client is told of them."""

from klamm_broker.cluster.view import ClusterView, NodeEndpoint

__all__ = ["ClusterView", "NodeEndpoint"]
