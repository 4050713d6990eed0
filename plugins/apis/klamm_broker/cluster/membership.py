"""`Membership`: the nodes of one process, their state, and the addresses at which clients reach them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm import ListenerContext
from klamm.runtime import Clock, SystemClock

_SYSTEM_CLOCK: Final = SystemClock()
_CHANGES_KEPT: Final = 1000


class ClusterChange(NamedTuple):
    """A change in words. `kind` is `node` or `leader`; `node_id` is the node that stops, starts or leads, or -1."""

    monotonic_ns: int
    kind: str
    node_id: int
    text: str


class NodeEndpoint(NamedTuple):
    """The address at which clients of a listener reach a node: Kafka's `Node`."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Membership:
    """The nodes, numbered from `first_id` on. Readers take no lock, because each change replaces a value as a whole.

    `listeners` has the listeners of all nodes. A node's listener is found by the node's position and by the listener's
    name in the configuration. `generation` rises with each change, so callers can cache descriptions of the cluster.
    `changes` has the latest 1,000 changes, for the reports of tests.
    """

    def __init__(
        self,
        first_id: int,
        count: int,
        rack: str | None,
        listeners: Mapping[str, ListenerContext] | None = None,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        self.node_ids: Sequence[int] = tuple(range(first_id, first_id + count))
        self.running: Sequence[int] = self.node_ids
        self.generation = 0
        self.starts: Mapping[int, int] = dict.fromkeys(self.node_ids, 1)
        """Number of times that each node has started: Kafka's broker epochs."""
        self._first_id = first_id
        self._rack = rack
        self.listeners = listeners or {}
        self._clock = clock
        self.changes: deque[ClusterChange] = deque(maxlen=_CHANGES_KEPT)

    def note_change(self, node_id: int, text: str, kind: str = "leader") -> None:
        """Keep a change for the reports of tests."""
        self.changes.append(ClusterChange(self._clock.monotonic_ns(), kind, node_id, text))

    def set_running(self, node_ids: Sequence[int]) -> None:
        """Set the running nodes. Raises ValueError for an empty set: the last node cannot stop."""
        if not node_ids:
            raise ValueError("the last running node cannot be stopped")
        started = [node_id for node_id in node_ids if node_id not in self.running]
        stopped = [node_id for node_id in self.running if node_id not in node_ids]
        for node_id in (*stopped, *started):
            self.note_change(node_id, f"node {node_id} {'started' if node_id in started else 'stopped'}", "node")
        self.starts = {node_id: count + (node_id in started) for node_id, count in self.starts.items()}
        self.running = tuple(node_id for node_id in self.node_ids if node_id in node_ids)
        self.generation += 1

    def check(self, node_id: int) -> None:
        """Raise LookupError if the node does not exist."""
        if node_id not in self.node_ids:
            known = ", ".join(str(each) for each in self.node_ids)
            raise LookupError(f"there is no node {node_id}; there is {known}")

    def endpoint(self, node_id: int, listener: ListenerContext) -> NodeEndpoint:
        """Return a node's address for clients of this listener."""
        host, port = self._listener_of(node_id, listener).advertised
        return NodeEndpoint(node_id, host, port, self._rack)

    def _listener_of(self, node_id: int, listener: ListenerContext) -> ListenerContext:
        node = node_id - self._first_id
        if node == listener.node:
            return listener
        name = listener.configured_as
        return next(each for each in self.listeners.values() if each.node == node and each.configured_as == name)

    def listeners_of(self, node_id: int) -> list[ListenerContext]:
        """Return the listeners of a node."""
        return [each for each in self.listeners.values() if each.node == node_id - self._first_id]
