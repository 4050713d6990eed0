"""The nodes of a cluster, what each leads and coordinates, and what clients learn of them."""

from klamm_broker.cluster.coordinators import Coordinators
from klamm_broker.cluster.elections import Elections
from klamm_broker.cluster.membership import Membership, NodeEndpoint
from klamm_broker.cluster.nodes import Nodes
from klamm_broker.cluster.view import ClusterView

__all__ = ["ClusterView", "Coordinators", "Elections", "Membership", "NodeEndpoint", "Nodes"]
