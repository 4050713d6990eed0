"""`Coordinators`: maps groups and transactional ids to the nodes that coordinate them.

As in Kafka, a key belongs to a partition of `__consumer_offsets` or `__transaction_state`, and the leader of that
partition is its coordinator. The topics themselves need not exist: here a partition is a number with a leader.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from klamm_broker.cluster.membership import Membership

PARTITIONS: Final = 50
"""Kafka's default of `offsets.topic.num.partitions` and `transaction.state.log.num.partitions`."""
_KEYS_KEPT: Final = 4096


def coordinator_partition(key: str) -> int:
    """Return the partition that a key belongs to."""
    return partition_for(key, PARTITIONS)


@lru_cache(_KEYS_KEPT)
def partition_for(key: str, partitions: int) -> int:
    """Return the partition of a key: Java's `abs(key.hashCode()) % partitions`."""
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8) + units[position + 1]) & 0xFFFFFFFF
    if code >= 1 << 31:
        code -= 1 << 32
    # Java has no positive number for the smallest one; Kafka uses 0.
    return 0 if code == -(1 << 31) else abs(code) % partitions


class Coordinators:
    """The coordinators of all keys. Any thread may call it.

    Partitions are assigned to the nodes in turn. If a partition's node is not running, the next running node
    coordinates the partition.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._moved: dict[int, int] = {}

    def node_of(self, key: str) -> int:
        """Return the node that coordinates this key."""
        return self.node_of_partition(coordinator_partition(key))

    def node_of_partition(self, partition: int) -> int:
        """Return the node that coordinates the keys of a partition."""
        nodes, running = self._membership.node_ids, self._membership.running
        wanted = self._moved.get(partition)
        first = partition % len(nodes) if wanted is None else nodes.index(wanted)
        return next(node for step in range(len(nodes)) if (node := nodes[(first + step) % len(nodes)]) in running)

    def move(self, key: str, node_id: int) -> None:
        """Make a node the coordinator of this key and of all other keys in its partition."""
        self._moved = {**self._moved, coordinator_partition(key): node_id}
