"""Placement of the replicas of new partitions. Errors follow Kafka's `ReplicationControlManager`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from klamm import ErrorCode, KafkaError
from klamm_broker.limits.ledger import UNKNOWN_OWNER
from klamm_broker.storage.store import Statement
from klamm_broker.topics.leadership import Leadership, put_leaderships

Replicas: TypeAlias = Sequence[tuple[int, ...]]
"""The replicas of partitions, as node ids; the first of each is the preferred leader."""


class NewTopic(NamedTuple):
    """A topic to be created: its number of partitions, its configs, and the replicas of each partition.

    Without `replicas` each partition has `replication_factor` replicas, placed by the cluster. The topic counts towards
    the share of its `owner`.
    """

    partitions: int
    overrides: Mapping[str, str]
    replicas: Replicas = ()
    replication_factor: int = 1
    owner: str = UNKNOWN_OWNER


class ReplicaPlacement:
    """Assigns preferred leaders to the running nodes in turn; the other replicas go to the following nodes.

    `TopicRegistry` calls it when topics or partitions are created, on any thread.
    """

    def __init__(self, running: Callable[[], Sequence[int]], *, is_stored: bool = False) -> None:
        """Place replicas on `running` nodes. `is_stored` is True if there are several: placements must survive a
        restart.
        """
        self._running = running
        self._is_stored = is_stored

    def place(self, count: int, replication_factor: int, first: int) -> list[tuple[int, ...]]:
        """Return the replicas of `count` partitions; `first` is the number of partitions assigned before."""
        nodes = self._running()
        if len(nodes) == 1:
            return [tuple(nodes)] * count
        kept = min(replication_factor, len(nodes))
        return [
            tuple(nodes[(first + partition + step) % len(nodes)] for step in range(kept)) for partition in range(count)
        ]

    def placed(self, wanted: NewTopic, first: int) -> NewTopic:
        """Return the topic with its replicas: those that it names, or those that `place` returns."""
        if wanted.replicas:
            return wanted
        return wanted._replace(replicas=self.place(wanted.partitions, wanted.replication_factor, first))

    def put(self, topic_id: bytes, leaderships: Iterable[Leadership]) -> list[Statement]:
        """Return the statements that store the leaders of a topic's partitions; none if there is a single node."""
        return [put_leaderships(topic_id, leaderships)] if self._is_stored else []

    def place_more(self, count: int, last: Leadership) -> list[tuple[int, ...]]:
        """Return the replicas of `count` further partitions of a topic, with the replication factor of its `last`
        partition.
        """
        nodes = self._running()
        first = nodes.index(last.replicas[0]) + 1 if last.replicas[0] in nodes else 0
        return self.place(count, len(last.replicas), first)

    def check_replication_factor(self, replication_factor: int) -> None:
        """Raise KafkaError(INVALID_REPLICATION_FACTOR) if there are fewer running nodes than replicas."""
        there = len(self._running())
        if replication_factor <= 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1; -1 means the default"
            )
        if replication_factor > there:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{replication_factor} replicas need {replication_factor} brokers, but there"
                f" {'is' if there == 1 else 'are'} only {there}",
            )

    def check_replicas(self, node_ids: Sequence[int]) -> None:
        """Raise KafkaError(INVALID_REPLICA_ASSIGNMENT) unless all ids are those of running nodes, each named once."""
        problem = None
        unknown = next((node_id for node_id in node_ids if node_id not in self._running()), None)
        if not node_ids:
            problem = "a partition is not assigned to any broker"
        elif unknown is not None:
            problem = f"a partition is assigned to broker {unknown}, which does not exist"
        elif len(set(node_ids)) < len(node_ids):
            twice = next(node_id for node_id in node_ids if node_ids.count(node_id) > 1)
            problem = f"a partition is assigned to broker {twice} more than once"
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
