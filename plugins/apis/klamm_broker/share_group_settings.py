"""Settings of share groups (KIP-932): Kafka's broker keys, meanings and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from klamm import setting
from klamm.config import CLUSTER_WIDE
from klamm_broker.numbers import INT32_MAX


@dataclass(frozen=True, kw_only=True)
class ShareGroupSettings:
    """The keys `group.share.*` of `[broker]`."""

    group_share_session_timeout_ms: int = setting(
        45_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest time for which a member of a share group may be silent.",
    )
    group_share_min_session_timeout_ms: int = setting(
        45_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Shortest session timeout that a share group's own config may set.",
    )
    group_share_max_session_timeout_ms: int = setting(
        60_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest session timeout that a share group's own config may set.",
    )
    group_share_heartbeat_interval_ms: int = setting(
        5_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Time between two heartbeats of a member of a share group.",
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        5_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Shortest heartbeat interval that a share group's own config may set.",
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        15_000,
        minimum=1,
        maximum=INT32_MAX,
        doc="Longest heartbeat interval that a share group's own config may set.",
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000,
        minimum=1000,
        maximum=3_600_000,
        doc="Time for which a member of a share group holds a record that it has acquired and not acknowledged.",
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000,
        minimum=1000,
        maximum=30_000,
        doc="Shortest lock that a share group's own config may set.",
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000,
        minimum=30_000,
        maximum=3_600_000,
        doc="Longest lock that a share group's own config may set.",
    )
    group_share_delivery_count_limit: int = setting(
        5,
        minimum=2,
        maximum=25,
        doc="Number of times a record is delivered to members of a share group before it is archived.",
    )
    group_share_min_delivery_count_limit: int = setting(
        2,
        minimum=2,
        maximum=5,
        doc="Lowest delivery count limit that a share group's own config may set.",
    )
    group_share_max_delivery_count_limit: int = setting(
        10,
        minimum=5,
        maximum=25,
        doc="Highest delivery count limit that a share group's own config may set.",
    )
    group_share_partition_max_record_locks: int = setting(
        2000,
        minimum=100,
        maximum=10_000,
        doc="Most records in flight in a partition of a share group; a batch that begins below it counts as a whole.",
    )
    group_share_min_partition_max_record_locks: int = setting(
        100,
        minimum=100,
        maximum=2000,
        doc="Lowest limit of records in flight that a share group's own config may set.",
    )
    group_share_max_partition_max_record_locks: int = setting(
        4000,
        minimum=2000,
        maximum=10_000,
        doc="Highest limit of records in flight that a share group's own config may set.",
    )
    group_share_max_size: int = setting(200, minimum=1, maximum=1000, doc="Most members of a share group.")
    group_share_max_share_sessions: int = setting(2000, minimum=1, doc="Most share sessions of this broker.")

    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False,
        doc="Create the dead-letter topic of a share group that has the name of one that does not exist.",
        dynamic=CLUSTER_WIDE,
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.",
        doc="Prefix of the names of dead-letter topics; other topics get no dead letters.",
        dynamic=CLUSTER_WIDE,
    )
