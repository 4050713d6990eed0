"""The settings of Kafka's internal topics: its keys, meanings and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm_broker.numbers import INT32_MAX


def _partitions(topic: str) -> int:
    partitions: int = setting(50, minimum=1, doc=f"Partitions of `{topic}`.")
    return partitions


def _replicas(topic: str) -> int:
    doc = f"Replication factor of `{topic}`, at most the number of `nodes`."
    replicas: int = setting(3, minimum=1, maximum=32767, doc=doc)
    return replicas


def _segment_bytes(topic: str) -> int:
    doc = f"Size of a segment file of `{topic}`."
    segment_bytes: int = setting(100 * 1_048_576, minimum=1, maximum=INT32_MAX, doc=doc)
    return segment_bytes


def _min_in_sync(topic: str, maximum: int | None = None) -> int:
    doc = f"The config `min.insync.replicas` of `{topic}`."
    min_in_sync: int = setting(2, minimum=1, maximum=maximum, doc=doc)
    return min_in_sync


# No slots: `BrokerSettings` inherits from several such classes, and only it has instances.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class InternalTopicSettings:
    """`offsets.topic.*`, `transaction.state.log.*` and `share.coordinator.state.topic.*` in `[broker]`."""

    offsets_topic_num_partitions: int = _partitions("__consumer_offsets")
    offsets_topic_replication_factor: int = _replicas("__consumer_offsets")
    offsets_topic_segment_bytes: int = _segment_bytes("__consumer_offsets")
    transaction_state_log_num_partitions: int = _partitions("__transaction_state")
    transaction_state_log_replication_factor: int = _replicas("__transaction_state")
    transaction_state_log_segment_bytes: int = _segment_bytes("__transaction_state")
    transaction_state_log_min_isr: int = _min_in_sync("__transaction_state")
    share_coordinator_state_topic_num_partitions: int = _partitions("__share_group_state")
    share_coordinator_state_topic_replication_factor: int = _replicas("__share_group_state")
    share_coordinator_state_topic_segment_bytes: int = _segment_bytes("__share_group_state")
    share_coordinator_state_topic_min_isr: int = _min_in_sync("__share_group_state", maximum=32767)
