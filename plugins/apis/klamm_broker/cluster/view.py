"""`ClusterView`: the cluster as one of its nodes sees it, which every handler asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from klamm import ListenerContext


class NodeEndpoint(NamedTuple):
    """Where clients of a listener reach a node; Kafka's `Node`."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterView:
    """A cluster of one node, which leads every partition and coordinates everything."""

    def __init__(self, node_id: int, rack: str | None) -> None:
        self.node_id = node_id
        self._rack = rack

    @property
    def controller_id(self) -> int:
        """The node that clients take for the controller."""
        return self.node_id

    @property
    def node_ids(self) -> Sequence[int]:
        """The nodes that run."""
        return (self.node_id,)

    def endpoints(self, listener: ListenerContext) -> Sequence[NodeEndpoint]:
        """The nodes that run, at their addresses for clients of this listener."""
        host, port = listener.advertised
        return (NodeEndpoint(self.node_id, host, port, self._rack),)

    def coordinator(self, key: str, listener: ListenerContext) -> NodeEndpoint | None:
        """The node that coordinates a group, or the transactions of an id; None while there is none."""
        host, port = listener.advertised
        return NodeEndpoint(self.node_id, host, port, self._rack)
