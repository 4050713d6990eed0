"""`Nodes`: lets a test control the nodes of a broker. Each change takes effect at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from klamm_broker.cluster.coordinators import PARTITIONS, Coordinators, coordinator_partition
from klamm_broker.cluster.elections import Elections
from klamm_broker.cluster.membership import ClusterChange, Membership
from klamm_broker.topics.leadership import NO_LEADER
from klamm_broker.topics.topic import Partition
from klamm_broker.topics.topic_registry import TopicRegistry


class Nodes:
    """The controls of a broker's nodes. Any thread except a processor's may call the methods; a lock makes changes one
    at a time. The methods raise LookupError for an unknown node, topic or partition.

    `leave(is_moved)` answers the waiting requests of each group for which `is_moved(group_id)` is True, because
    another node now coordinates the group.
    """

    def __init__(
        self,
        membership: Membership,
        coordinators: Coordinators,
        topics: TopicRegistry,
        elections: Elections,
        leave: Callable[[Callable[[str], bool]], None],
    ) -> None:
        self._membership = membership
        self._coordinators = coordinators
        self._topics = topics
        self._elections = elections
        self._leave = leave
        # One change at a time.
        self._lock = threading.Lock()

    def describe(self) -> list[dict[str, Any]]:
        """Return for each node its id, its addresses by listener, its state, its epoch, and the number of partitions
        that it leads.
        """
        leaders = [partition.leadership.leader_id for topic in self._topics.all() for partition in topic.partitions]
        return [
            {
                "id": node_id,
                "running": node_id in self._membership.running,
                "epoch": self._membership.starts[node_id],
                "listeners": {each.configured_as: str(each.bound) for each in self._membership.listeners_of(node_id)},
                "leads": leaders.count(node_id),
            }
            for node_id in self._membership.node_ids
        ]

    @property
    def changes(self) -> Sequence[ClusterChange]:
        """The latest changes of nodes, leaders and coordinators, oldest first."""
        return self._membership.changes.copy()

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition of a topic, -1 for none."""
        found = self._topics.get(topic)
        if found is None:
            raise LookupError(f'there is no topic "{topic}"')
        return {partition.index: partition.leadership.leader_id for partition in found.partitions}

    def coordinator(self, key: str) -> int:
        """Return the node that coordinates a group or a transactional id."""
        return self._coordinators.node_of(key)

    def stop(self, node_id: int) -> None:
        """Close a node's ports and connections; other nodes take over its partitions and groups.

        A partition without a replica elsewhere then has no leader. Raises ValueError for the last running node.
        """
        self._membership.check(node_id)
        with self._lock:
            running = [each for each in self._membership.running if each != node_id]
            if len(running) == len(self._membership.running):
                return
            before = self._coordinated()
            self._membership.set_running(running)
            for listener in self._membership.listeners_of(node_id):
                listener.go_offline()
            self._elections.node_stopped(node_id)
            self._topics.metadata_changed()
            self._leave_moved(before)

    def start(self, node_id: int) -> None:
        """Open a stopped node's ports again. The node leads those of its partitions that have no leader. An election
        can make it the leader of the others.

        Raises an exception if another program has taken a port meanwhile.
        """
        self._membership.check(node_id)
        with self._lock:
            if node_id in self._membership.running:
                return
            before = self._coordinated()
            for listener in self._membership.listeners_of(node_id):
                listener.go_online()
            self._membership.set_running([*self._membership.running, node_id])
            self._elections.node_started(node_id)
            self._topics.metadata_changed()
            self._leave_moved(before)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader of a partition. Raises ValueError for a node that is not running."""
        self._membership.check(node_id)
        with self._lock:
            self._elections.move(self._partition(topic, partition), node_id)

    def make_leaderless(self, topic: str, partition: int) -> None:
        """Leave a partition without a leader until a leader is moved or elected, or a replica's node starts."""
        with self._lock:
            self._elections.move(self._partition(topic, partition), NO_LEADER)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Make a node the coordinator of a group or a transactional id, and of all other keys in the same partition.

        Raises ValueError for a node that is not running.
        """
        self._membership.check(node_id)
        if node_id not in self._membership.running:
            raise ValueError(f"node {node_id} is not running")
        with self._lock:
            before = self._coordinated()
            self._coordinators.move(key, node_id)
            self._membership.note_change(node_id, f"node {node_id} coordinates {key}")
            self._leave_moved(before)

    def _partition(self, topic: str, index: int) -> Partition:
        found = self._topics.get(topic)
        partition = found.partition(index) if found is not None else None
        if partition is None:
            raise LookupError(f"there is no partition {topic}-{index}")
        return partition

    def _coordinated(self) -> Mapping[int, int]:
        return {number: self._coordinators.node_of_partition(number) for number in range(PARTITIONS)}

    def _leave_moved(self, before: Mapping[int, int]) -> None:
        after = self._coordinated()

        def is_moved(group_id: str) -> bool:
            number = coordinator_partition(group_id)
            return before[number] != after[number]

        if before != after:
            self._leave(is_moved)
