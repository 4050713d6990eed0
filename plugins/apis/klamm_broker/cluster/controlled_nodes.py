"""`ControlledNodes`: carries out a controller's orders to the nodes of a broker, and refuses outdated orders.

Follows `ReplicaManager.becomeLeaderOrFollower`, `stopReplicas` and `maybeUpdateMetadataCache` of Kafka 3.9.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.cluster.elections import Elections
from klamm_broker.cluster.membership import Membership
from klamm_broker.topics.leadership import NO_LEADER, Leadership
from klamm_broker.topics.topic import Partition
from klamm_broker.topics.topic_registry import TopicRegistry

_UNKNOWN_BROKER_EPOCH: Final = -1
_NO_TOPIC_ID: Final = bytes(16)


class PartitionOrder(NamedTuple):
    """The new leadership of a partition. `topic_id` is all zeros if the request has no topic id."""

    topic: str
    partition: int
    topic_id: bytes
    leadership: Leadership


class ControlledNode:
    """One node. The handlers of the set `control` call it on any thread.

    The node accepts no lower controller epoch than before, and no lower leader epoch of a partition.
    """

    def __init__(self, node_id: int, membership: Membership, elections: Elections, topics: TopicRegistry) -> None:
        self.node_id = node_id
        self._membership = membership
        self._elections = elections
        self._topics = topics
        # Protects the epochs; orders are executed one at a time.
        self._lock = threading.Lock()
        self._controller_epoch = 0
        self._given: dict[tuple[bytes, int], int] = {}

    def check_broker_epoch(self, epoch: int, *, from_kraft: bool) -> None:
        """Raise KafkaError(STALE_BROKER_EPOCH) if the order was meant for an earlier start of this node."""
        current = self._membership.starts[self.node_id]
        is_stale = epoch != current if from_kraft else epoch < current
        if epoch != _UNKNOWN_BROKER_EPOCH and is_stale:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"this broker has the epoch {current}")

    def lead(self, controller_epoch: int, orders: Sequence[PartitionOrder]) -> list[ErrorCode]:
        """Apply LeaderAndIsr. Return the error code of each order. Raises KafkaError(STALE_CONTROLLER_EPOCH)."""
        with self._lock:
            self._check_controller_epoch(controller_epoch)
            self._given = {key: epoch for key, epoch in self._given.items() if self._topics.by_id(key[0]) is not None}
            known = [self._with_known_replicas(order) for order in orders]
            results = [self._check(order) for order in known]
            self._impose(order for order, result in zip(known, results, strict=True) if result == ErrorCode.NONE)
        return results

    def update_metadata(self, controller_epoch: int, orders: Iterable[PartitionOrder]) -> None:
        """Apply UpdateMetadata to existing partitions. Raises KafkaError(STALE_CONTROLLER_EPOCH)."""
        with self._lock:
            self._check_controller_epoch(controller_epoch)
            self._impose(map(self._with_known_replicas, orders))

    def stop_replicas(
        self, controller_epoch: int, orders: Mapping[tuple[str, int], tuple[int, bool]]
    ) -> dict[tuple[str, int], ErrorCode]:
        """Apply StopReplica. Return the error codes by topic and partition.

        Each order has a leader epoch (negative if the request names none), and a flag that is True if the replica is
        to be deleted. Raises KafkaError(STALE_CONTROLLER_EPOCH).
        """
        results = {}
        with self._lock:
            self._check_controller_epoch(controller_epoch)
            for (name, index), (leader_epoch, is_deleted) in orders.items():
                partition = self._partition(name, index)
                is_late = partition is not None and 0 <= leader_epoch < partition.leadership.epoch
                results[name, index] = ErrorCode.FENCED_LEADER_EPOCH if is_late else ErrorCode.NONE
                if partition is not None and is_deleted and not is_late:
                    self._elections.remove_replica(partition, self.node_id)
        return results

    def shut_down(self, node_id: int, broker_epoch: int) -> list[Partition]:
        """Apply ControlledShutdown: let other nodes lead the node's partitions. Return the partitions that no other
        node can lead now.

        Raises KafkaError: NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        membership = self._membership
        if self.node_id != membership.running[0]:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if node_id not in membership.running:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not running")
        if broker_epoch != _UNKNOWN_BROKER_EPOCH and broker_epoch < membership.starts[node_id]:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return self._elections.leave(node_id)

    def _check_controller_epoch(self, epoch: int) -> None:
        if epoch < self._controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH, f"a controller of epoch {self._controller_epoch} is known"
            )
        self._controller_epoch = epoch

    def _check(self, order: PartitionOrder) -> ErrorCode:
        partition = self._partition(order.topic, order.partition)
        if partition is None or self.node_id not in order.leadership.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic_id = partition.topic.id
        if order.topic_id not in (_NO_TOPIC_ID, topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        wanted, current = order.leadership, partition.leadership
        # All nodes share one leadership, and the same order to another node has already changed it.
        is_shared = (
            wanted == current._replace(leader_id=wanted.leader_id)
            and current.leader_id in (wanted.leader_id, NO_LEADER)
            and self._given.get((topic_id, order.partition), -1) < wanted.epoch
        )
        if wanted.epoch <= current.epoch and not is_shared:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._given[topic_id, order.partition] = wanted.epoch
        return ErrorCode.NONE

    def _impose(self, orders: Iterable[PartitionOrder]) -> None:
        found = ((self._partition(order.topic, order.partition), order.leadership) for order in orders)
        self._elections.impose(
            (partition, leadership) for partition, leadership in found if partition is not None and leadership.replicas
        )

    def _with_known_replicas(self, order: PartitionOrder) -> PartitionOrder:
        known = self._membership.node_ids
        replicas = tuple(node_id for node_id in order.leadership.replicas if node_id in known)
        return order._replace(leadership=order.leadership._replace(replicas=replicas))

    def _partition(self, name: str, index: int) -> Partition | None:
        topic = self._topics.get(name)
        return topic.partition(index) if topic is not None else None


class ControlledNodes:
    """All nodes of a broker, by their position."""

    def __init__(self, membership: Membership, elections: Elections, topics: TopicRegistry) -> None:
        self._nodes = [ControlledNode(node_id, membership, elections, topics) for node_id in membership.node_ids]

    def at(self, position: int) -> ControlledNode:
        """Return the node at a position; the first position is 0."""
        return self._nodes[position]
