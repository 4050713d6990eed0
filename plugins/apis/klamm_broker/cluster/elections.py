"""`Elections`: chooses the leaders of partitions when nodes stop or start, on request, and on a controller's order.

Follows Kafka's `PartitionChangeBuilder`. All replicas are one log, so every replica on a running node is in sync.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm_broker.cluster.membership import Membership
from klamm_broker.storage.store import Store
from klamm_broker.topics.leadership import LEADERSHIP_ROWS, NO_LEADER, Leadership, put_leaderships
from klamm_broker.topics.topic import Partition
from klamm_broker.topics.topic_registry import TopicRegistry

_NAMED: Final = 3
_Change: TypeAlias = "tuple[Partition, Leadership]"
"""A partition and its new leadership."""


class Elections:
    """The elections of one broker. Any thread may call it.

    Changes are made one at a time. Each change raises the leader epoch of its partition, and wakes the Fetch requests
    that wait for the partition.
    """

    def __init__(self, topics: TopicRegistry, store: Store, membership: Membership) -> None:
        self._topics = topics
        self._store = store
        self._membership = membership
        # Held for each change of leaderships.
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read the stored leaderships, without nodes that have been removed. Raises StoreError."""
        rows = self._store.read("SELECT key, value FROM cluster WHERE key LIKE ?", (LEADERSHIP_ROWS + "%",))
        for key, value in rows:
            topic = self._topics.by_id(bytes.fromhex(key.removeprefix(LEADERSHIP_ROWS)))
            if topic is None:
                self._store.submit([("DELETE FROM cluster WHERE key = ?", (key,))])
                continue
            for partition, (leader_id, epoch, replicas) in zip(topic.partitions, json.loads(value), strict=False):
                partition.leadership = self._adopted(Leadership(leader_id, epoch, tuple(replicas)))

    def _adopted(self, stored: Leadership) -> Leadership:
        there = tuple(node_id for node_id in stored.replicas if node_id in self._membership.node_ids)
        replicas = there or tuple(self._membership.node_ids[:1])
        if stored.leader_id in replicas:
            return stored._replace(replicas=replicas)
        return Leadership(replicas[0], stored.epoch + 1, replicas)

    # When nodes stop and start

    def node_stopped(self, node_id: int) -> None:
        """Let other replicas lead the node's partitions; a partition without a running replica has no leader."""
        self._change(
            lambda: [
                (each, self._without(each.leadership, node_id))
                for each in self._all()
                if each.leadership.leader_id == node_id
            ]
        )

    def node_started(self, node_id: int) -> None:
        """Make the node the leader of its partitions that have no leader."""
        self._change(
            lambda: [
                (each, each.leadership.followed_by(node_id, each.leadership.replicas))
                for each in self._all()
                if each.leadership.leader_id == NO_LEADER and node_id in each.leadership.replicas
            ]
        )

    def _elected(self, replicas: Sequence[int], but: int = NO_LEADER) -> int:
        running = self._membership.running
        return next((node_id for node_id in replicas if node_id in running and node_id != but), NO_LEADER)

    def _without(self, leadership: Leadership, node_id: int) -> Leadership:
        return leadership.followed_by(self._elected(leadership.replicas, but=node_id), leadership.replicas)

    def _all(self) -> Iterator[Partition]:
        return (partition for topic in self._topics.all() for partition in topic.partitions)

    # On request

    def move(self, partition: Partition, node_id: int) -> None:
        """Make a node the leader of a partition; if it has no replica, it takes the place of the first replica.

        With NO_LEADER the partition has no leader. Raises ValueError for a node that is not running.
        """

        def decide() -> Iterator[_Change]:
            leader_id, _epoch, replicas = partition.leadership
            if node_id != NO_LEADER and node_id not in self._membership.running:
                raise ValueError(f"node {node_id} is not running")
            if leader_id != node_id:
                kept = replicas if node_id in (NO_LEADER, *replicas) else (node_id, *replicas[1:])
                yield partition, partition.leadership.followed_by(node_id, kept)

        self._change(decide)

    def elect_preferred(self, partition: Partition) -> None:
        """Make the first replica the leader. Raises KafkaError: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE."""

        def decide() -> Iterator[_Change]:
            leader_id, _epoch, replicas = partition.leadership
            if leader_id == replicas[0]:
                raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "the preferred leader already leads")
            if replicas[0] not in self._membership.running:
                raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {replicas[0]} is not running")
            yield partition, partition.leadership.followed_by(replicas[0], replicas)

        self._change(decide)

    def elect_any(self, partition: Partition) -> None:
        """Make any running replica the leader. Raises KafkaError: ELECTION_NOT_NEEDED,
        ELIGIBLE_LEADERS_NOT_AVAILABLE.
        """

        def decide() -> Iterator[_Change]:
            leader_id, _epoch, replicas = partition.leadership
            if leader_id != NO_LEADER:
                raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader_id} already leads")
            elected = self._elected(replicas)
            if elected == NO_LEADER:
                raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is running")
            yield partition, partition.leadership.followed_by(elected, replicas)

        self._change(decide)

    def reassign(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Give a partition other replicas. This takes effect at once, because all replicas are one log. The leader
        stays if it is among the new replicas and runs.
        """

        def decide() -> Iterator[_Change]:
            leader_id, _epoch, before = partition.leadership
            wanted = tuple(replicas)
            if wanted != before:
                elected = leader_id if leader_id in wanted else self._elected(wanted)
                yield partition, partition.leadership.followed_by(elected, wanted)

        self._change(decide)

    # On a controller's order

    def impose(self, changes: Iterable[tuple[Partition, Leadership]]) -> None:
        """Apply each leadership whose epoch is higher than the partition's; ignore the others.

        If the named leader is not running or has no replica, the partition has no leader.
        """

        def decide() -> Iterable[_Change]:
            running = self._membership.running
            newest: dict[Partition, Leadership] = {}
            for partition, wanted in changes:
                if wanted.epoch > newest.get(partition, partition.leadership).epoch:
                    may_lead = wanted.leader_id in running and wanted.leader_id in wanted.replicas
                    newest[partition] = wanted if may_lead else wanted._replace(leader_id=NO_LEADER)
            return newest.items()

        self._change(decide)

    def leave(self, node_id: int) -> list[Partition]:
        """Let other replicas lead the node's partitions. Return the partitions whose other replicas are all stopped."""
        remaining: list[Partition] = []

        def decide() -> Iterator[_Change]:
            for each in self._all():
                if each.leadership.leader_id == node_id and len(each.leadership.replicas) > 1:
                    wanted = self._without(each.leadership, node_id)
                    if wanted.leader_id == NO_LEADER:
                        remaining.append(each)
                    else:
                        yield each, wanted

        self._change(decide)
        return remaining

    def remove_replica(self, partition: Partition, node_id: int) -> None:
        """Remove a node's replica of a partition. The last replica stays, and does not lead."""

        def decide() -> Iterator[_Change]:
            leader_id, _epoch, replicas = partition.leadership
            if node_id in replicas:
                kept = tuple(each for each in replicas if each != node_id) or replicas
                elected = self._elected(kept, but=node_id) if leader_id == node_id else leader_id
                if (elected, kept) != (leader_id, replicas):
                    yield partition, partition.leadership.followed_by(elected, kept)

        self._change(decide)

    def _change(self, decide: Callable[[], Iterable[_Change]]) -> None:
        with self._lock:
            changes = list(decide())
            self._note(changes)
            for partition, leadership in changes:
                partition.leadership = leadership
            topics = {partition.topic.id: partition.topic for partition, _leadership in changes}
            if topics:
                self._store.submit(
                    [
                        put_leaderships(topic.id, (partition.leadership for partition in topic.partitions))
                        for topic in topics.values()
                    ]
                )
            self._membership.generation += bool(changes)
        if changes:
            self._topics.metadata_changed()
        for partition, _leadership in changes:
            partition.wake_fetches()

    def _note(self, changes: Iterable[_Change]) -> None:
        """Record the new leaders for the reports of tests."""
        moves: dict[tuple[int, int], list[str]] = {}
        for partition, leadership in changes:
            move = (partition.leadership.leader_id, leadership.leader_id)
            if move[0] != move[1]:
                moves.setdefault(move, []).append(f"{partition.topic.name}-{partition.index}")
        for (before, after), names in moves.items():
            leader = "no node" if after == NO_LEADER else f"node {after}"
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            instead = "" if before == NO_LEADER else f", after node {before}"
            self._membership.note_change(after, f"{leader} leads {', '.join(names[:_NAMED])}{more}{instead}")
