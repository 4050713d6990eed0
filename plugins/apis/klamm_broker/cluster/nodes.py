"""`Nodes`: what a test does to the nodes of a broker. Each change takes effect at once, and by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klamm_broker.cluster.coordinators import PARTITIONS, coordinator_partition
from klamm_broker.topics.leadership import NO_LEADER

if TYPE_CHECKING:
    from klamm_broker.cluster.coordinators import Coordinators
    from klamm_broker.cluster.elections import Elections
    from klamm_broker.cluster.membership import ClusterChange, Membership
    from klamm_broker.topics.topic import Partition
    from klamm_broker.topics.topic_registry import TopicRegistry


class Nodes:
    """From any thread but a processor's, one call at a time. Raises LookupError for what there is not.

    `leave(is_moved)` answers the requests that wait for groups of which `is_moved(group_id)` is true.
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
        """Each node: its id, its addresses by listener, whether it runs, its epoch, how many partitions it leads."""
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
        """The leader of each partition of a topic, -1 for none."""
        found = self._topics.get(topic)
        if found is None:
            raise LookupError(f'there is no topic "{topic}"')
        return {partition.index: partition.leadership.leader_id for partition in found.partitions}

    def coordinator(self, key: str) -> int:
        """The node that coordinates a group, or the transactions of an id."""
        return self._coordinators.node_of(key)

    def stop(self, node_id: int) -> None:
        """Close a node's ports and connections; others lead and coordinate what it did.

        A partition with no replica elsewhere has no leader then. Raises ValueError for the last node that runs.
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
        """Open a stopped node's ports again. It leads what no node leads; an election gives it the rest back.

        Raises an exception if a port is taken meanwhile.
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
        """Have a node lead a partition. Raises ValueError for one that does not run."""
        self._membership.check(node_id)
        with self._lock:
            self._elections.move(self._partition(topic, partition), node_id)

    def make_leaderless(self, topic: str, partition: int) -> None:
        """Have no node lead a partition, until one is moved there, elected or started."""
        with self._lock:
            self._elections.move(self._partition(topic, partition), NO_LEADER)

    def move_coordinator(self, key: str, node_id: int) -> None:
        """Have a node coordinate a group, or the transactions of an id, and all others of its offsets partition.

        Raises ValueError for a node that does not run.
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
