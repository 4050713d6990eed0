"""`Cluster`: the nodes of one broker, and each node's view of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm import ListenerContext
from klamm.runtime import Clock
from klamm.shared import SharedState
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.cluster.controlled_nodes import ControlledNodes
from klamm_broker.cluster.coordinators import Coordinators
from klamm_broker.cluster.elections import Elections
from klamm_broker.cluster.membership import Membership
from klamm_broker.cluster.nodes import Nodes
from klamm_broker.cluster.view import ClusterView
from klamm_broker.storage.store import Store
from klamm_broker.topics.placement import ReplicaPlacement
from klamm_broker.topics.topic_registry import TopicRegistry


class Cluster:
    """The nodes of a broker, their leaders and coordinators. `Broker` calls `load` when the topics exist."""

    elections: Elections
    nodes: Nodes

    def __init__(self, settings: BrokerSettings, listeners: Mapping[str, ListenerContext], clock: Clock) -> None:
        self._first_id = settings.node_id
        self.membership = Membership(settings.node_id, settings.nodes, settings.broker_rack, listeners, clock)
        self.placement = ReplicaPlacement(lambda: self.membership.running, is_stored=settings.nodes > 1)
        self._coordinators = Coordinators(self.membership)

    def load(self, topics: TopicRegistry, store: Store, leave: Callable[[Callable[[str], bool]], None]) -> None:
        """Read the stored leaders of partitions. `Nodes` explains `leave`. Raises StoreError."""
        self.elections = Elections(topics, store, self.membership)
        self.elections.load()
        self.nodes = Nodes(self.membership, self._coordinators, topics, self.elections, leave)

    def publish(self, shared: SharedState, topics: TopicRegistry) -> None:
        """Publish `Nodes` for tests, and `ControlledNodes` for the set `control`, in the server's shared state."""
        shared.once("klamm.nodes", lambda: self.nodes)
        shared.once("klamm.controlled-nodes", lambda: ControlledNodes(self.membership, self.elections, topics))

    def view(self, node: int) -> ClusterView:
        """Return the view of the node at this position; the first position is 0."""
        return ClusterView(self._first_id + node, self.membership, self._coordinators)

    def describe(self) -> str:
        """Return the nodes in words, e.g. `node 1`."""
        first, *others = self.membership.node_ids
        return f"nodes {first} to {others[-1]} for tests, nothing is replicated" if others else f"node {first}"
