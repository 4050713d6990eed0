"""`NodeActions`: what the HTTP API does to the nodes of the broker; arguments and results are JSON values."""

from __future__ import annotations

from typing import Any

from klamm import ServerServices


class NodeActions:
    """Any thread may call it. Bad requests raise ValueError, TypeError or LookupError."""

    def __init__(self, services: ServerServices) -> None:
        self._services = services

    def _nodes(self) -> Any:
        def missing() -> Any:
            raise LookupError("this server has no broker, and so no nodes")

        return self._services.shared.once("klamm.nodes", missing)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of the broker."""
        found: list[dict[str, Any]] = self._nodes().describe()
        return found

    def set_node(self, node: str, running: bool) -> list[dict[str, Any]]:
        """Stop or start a node."""
        nodes = self._nodes()
        (nodes.start if running else nodes.stop)(int(node))
        return self.nodes()

    def leaders(self, topic: str) -> dict[str, int]:
        """The leader of each partition of a topic, -1 for none."""
        return {str(partition): node for partition, node in self._nodes().leaders(topic).items()}

    def move_leader(self, topic: str, partition: int, node: int | None) -> dict[str, int]:
        """Have a node lead a partition, or none."""
        nodes = self._nodes()
        if node is None:
            nodes.make_leaderless(topic, partition)
        else:
            nodes.move_leader(topic, partition, node)
        return self.leaders(topic)

    def coordinator(self, key: str) -> dict[str, int]:
        """The node that coordinates a group, or the transactions of an id."""
        return {"node": self._nodes().coordinator(key)}

    def move_coordinator(self, key: str, node: int) -> dict[str, int]:
        """Have a node coordinate a group, or the transactions of an id."""
        self._nodes().move_coordinator(key, node)
        return self.coordinator(key)
