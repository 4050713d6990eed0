"""The settings of Kafka's internal topics: its keys, meanings and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm_broker.numbers import INT32_MAX

_PARTITIONS = 50
_REPLICAS = 3
_SEGMENT_BYTES = 100 * 1_048_576
_MIN_IN_SYNC = 2
_UP_TO_NODES = "at most as many as there are `nodes`"


# Without slots, as a class may have several bases like this one.
@dataclass(frozen=True, kw_only=True)
class InternalTopicSettings:
    """`offsets.topic.*`, `transaction.state.log.*` and `share.coordinator.state.topic.*` in `[broker]`."""

    offsets_topic_num_partitions: int = setting(_PARTITIONS, minimum=1, doc="Partitions of `__consumer_offsets`.")
    offsets_topic_replication_factor: int = setting(
        _REPLICAS,
        minimum=1,
        maximum=32767,
        doc=f"Replication factor of `__consumer_offsets`, {_UP_TO_NODES}.",
    )
    offsets_topic_segment_bytes: int = setting(
        _SEGMENT_BYTES,
        minimum=1,
        maximum=INT32_MAX,
        doc="Size of a segment file of `__consumer_offsets`.",
    )
    transaction_state_log_num_partitions: int = setting(
        _PARTITIONS, minimum=1, doc="Partitions of `__transaction_state`."
    )
    transaction_state_log_replication_factor: int = setting(
        _REPLICAS,
        minimum=1,
        maximum=32767,
        doc=f"Replication factor of `__transaction_state`, {_UP_TO_NODES}.",
    )
    transaction_state_log_segment_bytes: int = setting(
        _SEGMENT_BYTES,
        minimum=1,
        maximum=INT32_MAX,
        doc="Size of a segment file of `__transaction_state`.",
    )
    transaction_state_log_min_isr: int = setting(
        _MIN_IN_SYNC,
        minimum=1,
        doc="The config `min.insync.replicas` of `__transaction_state`.",
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        _PARTITIONS,
        minimum=1,
        doc="Partitions of `__share_group_state`.",
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        _REPLICAS,
        minimum=1,
        maximum=32767,
        doc=f"Replication factor of `__share_group_state`, {_UP_TO_NODES}.",
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        _SEGMENT_BYTES,
        minimum=1,
        maximum=INT32_MAX,
        doc="Size of a segment file of `__share_group_state`.",
    )
    share_coordinator_state_topic_min_isr: int = setting(
        _MIN_IN_SYNC,
        minimum=1,
        maximum=32767,
        doc="The config `min.insync.replicas` of `__share_group_state`.",
    )
