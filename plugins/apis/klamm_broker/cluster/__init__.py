"""The nodes of a cluster, their leaderships and coordinators, and the view of them that clients get."""

from klamm_broker.cluster.cluster import Cluster
from klamm_broker.cluster.elections import Elections
from klamm_broker.cluster.membership import Membership, NodeEndpoint
from klamm_broker.cluster.nodes import Nodes
from klamm_broker.cluster.view import ClusterView

__all__ = ["Cluster", "ClusterView", "Elections", "Membership", "NodeEndpoint", "Nodes"]
