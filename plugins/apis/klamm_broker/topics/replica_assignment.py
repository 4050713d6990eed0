"""Checks of replication factors and replica assignments, for CreateTopics and CreatePartitions: there is one broker.

Errors follow Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm import ErrorCode, KafkaError


def check_replication_factor(replication_factor: int) -> None:
    """Raise KafkaError(INVALID_REPLICATION_FACTOR) for a factor that a single broker cannot provide."""
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be at least 1; -1 means the default"
        )
    if replication_factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{replication_factor} replicas need {replication_factor} brokers, and there is 1",
        )


def check_replicas(broker_ids: Sequence[int], node_id: int) -> None:
    """Raise KafkaError(INVALID_REPLICA_ASSIGNMENT) unless a partition is assigned to this node and no other."""
    problem = None
    unknown = next((broker_id for broker_id in broker_ids if broker_id != node_id), None)
    if not broker_ids:
        problem = "a partition is assigned to no broker"
    elif unknown is not None:
        problem = f"a partition is assigned to broker {unknown}, which does not exist"
    elif len(broker_ids) > 1:
        problem = f"a partition is assigned to broker {node_id} more than once"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
