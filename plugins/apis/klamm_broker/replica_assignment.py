"""What a client may say about where replicas lie: here, once. Used by CreateTopics and CreatePartitions.

Messages and errors follow Kafka's `ReplicationControlManager`.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm import ErrorCode, KafkaError


def check_replication_factor(replication_factor: int) -> None:
    """Raise KafkaError(INVALID_REPLICATION_FACTOR) for one that a single broker cannot give."""
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1 to use the default."
        )
    if replication_factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only 1 broker(s) are"
            " registered.",
        )


def check_replicas(broker_ids: Sequence[int], node_id: int) -> None:
    """Raise KafkaError(INVALID_REPLICA_ASSIGNMENT) unless a partition is assigned to this node and no other."""
    problem = None
    unknown = next((broker_id for broker_id in broker_ids if broker_id != node_id), None)
    if not broker_ids:
        problem = "The manual partition assignment includes an empty replica list."
    elif unknown is not None:
        problem = f"The manual partition assignment includes broker {unknown}, but no such broker is registered."
    elif len(broker_ids) > 1:
        problem = f"The manual partition assignment includes the broker {node_id} more than once."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
