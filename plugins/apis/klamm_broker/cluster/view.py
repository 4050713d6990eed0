"""`ClusterView`: the cluster as one of its nodes sees it, for every handler."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from klamm import ErrorCode, KafkaError, ListenerContext
from klamm_broker.cluster.coordinators import Coordinators
from klamm_broker.cluster.membership import Membership, NodeEndpoint
from klamm_broker.topics.topic import Partition


class ClusterView:
    """The view of one node. The node's handlers call it on any thread. `node_id` is the node's id."""

    def __init__(self, node_id: int, membership: Membership, coordinators: Coordinators | None = None) -> None:
        self.node_id = node_id
        self.membership = membership
        self._coordinators = coordinators or Coordinators(membership)
        self._is_alone = len(membership.node_ids) == 1

    @property
    def controller_id(self) -> int:
        """The node that clients see as the controller: the first running node."""
        return self.membership.running[0]

    @property
    def node_ids(self) -> Sequence[int]:
        """The nodes that run."""
        return self.membership.running

    def endpoints(self, listener: ListenerContext) -> Sequence[NodeEndpoint]:
        """Return the running nodes, with their addresses for clients of this listener."""
        return [self.membership.endpoint(node_id, listener) for node_id in self.membership.running]

    @property
    def generation(self) -> int:
        """A number that rises with each change of the leaders or of the running nodes."""
        return self.membership.generation

    # Coordinators

    def coordinator(self, key: str, listener: ListenerContext) -> NodeEndpoint:
        """Return the node that coordinates a group or a transactional id, with its address for clients of this
        listener.
        """
        return self.membership.endpoint(self._coordinators.node_of(key), listener)

    def coordinates(self, key: str) -> bool:
        """Return True if this node coordinates a group or a transactional id."""
        return self._is_alone or self._coordinators.node_of(key) == self.node_id

    def check_coordinates(self, key: str) -> None:
        """Raise KafkaError(NOT_COORDINATOR) unless this node coordinates the group or transactional id."""
        if not self.coordinates(key):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    # Partitions

    def check_leads(self, partition: Partition) -> None:
        """Raise KafkaError(NOT_LEADER_OR_FOLLOWER) unless this node leads the partition."""
        if partition.leadership.leader_id != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def replica_lists(self, replicas: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Return all replicas, the replicas in sync, and the offline replicas. If no replica is running, only the first
        one is in sync.
        """
        running = self.membership.running
        online = [node_id for node_id in replicas if node_id in running]
        offline = [node_id for node_id in replicas if node_id not in running]
        return [*replicas], online or [*replicas[:1]], offline

    def endpoints_of(self, node_ids: Collection[int], listener: ListenerContext) -> list[NodeEndpoint]:
        """Return the endpoints of the running nodes among these, with their addresses for clients of this listener."""
        return [each for each in self.endpoints(listener) if each.node_id in node_ids]
