"""`NodeActions`: the nodes of the broker, the leaders and the coordinators."""

from __future__ import annotations

from klamm_control.controlled import Actions
from klamm_control.routes import route
from klamm_control.values import Coordinator, Node


class NodeActions(Actions):
    """The nodes of the broker."""

    @route("GET", "/nodes")
    def nodes(self) -> list[Node]:
        """Return the nodes of the broker."""
        found: list[Node] = self._server.nodes.describe()
        return found

    @route("POST", "/nodes/{node}")
    def set_node(self, node: int, running: bool) -> list[Node]:
        """Stop or start a node, and return all nodes."""
        nodes = self._server.nodes
        (nodes.start if running else nodes.stop)(node)
        return self.nodes()

    @route("GET", "/leaders/{topic}")
    def leaders(self, topic: str) -> dict[str, int]:
        """Return the leader of each partition of a topic, -1 for none."""
        return {str(partition): node for partition, node in self._server.nodes.leaders(topic).items()}

    @route("POST", "/leaders/{topic}")
    def move_leader(self, topic: str, partition: int, node: int | None) -> dict[str, int]:
        """Make a node the leader of a partition, or let no node lead it. Return the leaders of the topic."""
        nodes = self._server.nodes
        if node is None:
            nodes.make_leaderless(topic, partition)
        else:
            nodes.move_leader(topic, partition, node)
        return self.leaders(topic)

    @route("GET", "/coordinators/{key}")
    def coordinator(self, key: str) -> Coordinator:
        """Return the node that coordinates a group or a transactional id."""
        return {"node": self._server.nodes.coordinator(key)}

    @route("POST", "/coordinators/{key}")
    def move_coordinator(self, key: str, node: int) -> Coordinator:
        """Make a node the coordinator of a group or a transactional id."""
        self._server.nodes.move_coordinator(key, node)
        return self.coordinator(key)
