"""Settings of the broker handler set: Kafka's broker keys, meanings and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from klamm import setting
from klamm.config import CLUSTER_WIDE, did_you_mean
from klamm_broker.configs.topic_config import COMPRESSION_TYPES
from klamm_broker.group_type_settings import GroupTypeSettings
from klamm_broker.internal_topic_settings import InternalTopicSettings
from klamm_broker.numbers import INT32_MAX, INT64_MAX
from klamm_broker.security.token_secret import read_secret_key
from klamm_broker.state_limit_settings import RecordSettings, StateLimitSettings
from klamm_broker.transaction_settings import TransactionSettings

_CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def _check_cleanup_policy(policies: tuple[str, ...]) -> str | None:
    unknown = next((one for one in policies if one not in _CLEANUP_POLICIES), None)
    if unknown is None:
        return None
    return f'must be compact, delete or both, not "{unknown}"{did_you_mean(unknown, _CLEANUP_POLICIES)}'


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(RecordSettings, StateLimitSettings, TransactionSettings, InternalTopicSettings, GroupTypeSettings):
    """`[broker]`. A field's key in TOML is Kafka's name; the attribute is that name with underscores."""

    DOTTED_KEYS = True

    node_id: int = setting(1, minimum=0, doc="Id of this node. A data directory belongs to the node that created it.")
    nodes: int = setting(
        1,
        minimum=1,
        maximum=100,
        counts_nodes=True,
        doc="Nodes in this process, for tests: each opens all listeners, at ports of its own. Nothing is replicated.",
    )
    broker_rack: str | None = setting(None, doc="Rack of this broker, as reported in metadata.")
    num_partitions: int = setting(1, minimum=1, doc="Partitions of a topic that is created without a number.")
    default_replication_factor: int = setting(
        1,
        minimum=1,
        doc="Replication factor of a topic that is created without one: up to the number of `nodes`.",
    )
    auto_create_topics_enable: bool = setting(True, doc="Create a topic when a client asks for its metadata.")
    delete_topic_enable: bool = setting(True, doc="Let clients delete topics.")
    max_request_partition_size_limit: int = setting(
        2000,
        minimum=1,
        doc="Maximum number of partitions in one DescribeTopicPartitions response.",
    )

    # Produce and fetch

    message_max_bytes: int = setting(1_048_588, minimum=0, doc="Largest record batch in bytes, after compression.")
    compression_type: str = setting(
        "producer",
        choices=COMPRESSION_TYPES,
        doc="Codec of stored batches; producer keeps each batch unchanged.",
    )
    compression_gzip_level: int = setting(-1, minimum=-1, maximum=9, doc="Level for gzip; -1 is its own default.")
    compression_lz4_level: int = setting(9, minimum=1, maximum=17, doc="Level for lz4.")
    compression_zstd_level: int = setting(3, minimum=-131072, maximum=22, doc="Level for zstd.")
    min_insync_replicas: int = setting(
        1,
        minimum=1,
        doc="Replicas that must be in sync for acks=all, capped by the number of replicas: one suffices.",
    )
    fetch_max_bytes: int = setting(57_671_680, minimum=1024, doc="Maximum bytes of records in one Fetch response.")

    # Consumer groups

    group_initial_rebalance_delay_ms: int = setting(
        3000,
        minimum=0,
        doc="Time that the first rebalance of an empty group waits for more members.",
    )
    group_min_session_timeout_ms: int = setting(
        6000, minimum=0, doc="Shortest session timeout that a member may request."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, minimum=1, doc="Longest session timeout that a member may request."
    )
    group_max_size: int = setting(INT32_MAX, minimum=1, doc="Maximum number of members of a group.")
    group_max_bytes: int = setting(
        16 * 1_048_576,
        minimum=1,
        doc="Maximum bytes of names, subscriptions and classic protocols of all members of a group; share groups "
        "are exempt. klamm's own key.",
    )
    offset_metadata_max_bytes: int = setting(
        4096, minimum=0, doc="Maximum bytes of the metadata of a committed offset."
    )
    offsets_retention_minutes: int = setting(
        10_080,
        minimum=1,
        doc="Time for which committed offsets are kept after their group has become empty.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000,
        minimum=1,
        doc="Interval between searches for expired offsets.",
    )
    offsets_commit_fsync: bool = setting(
        False,
        doc="Sync committed offsets and groups to the disk before they are acknowledged. klamm's own key.",
    )

    # Delegation tokens

    delegation_token_secret_key_file: Path | None = setting(
        None,
        kafka="delegation.token.secret.key",
        doc="File with the key that signs delegation tokens; without a key, delegation tokens are disabled.",
        private=True,
    )
    delegation_token_secret_key_env: str | None = setting(
        None,
        kafka="delegation.token.secret.key",
        doc="Environment variable with the key that delegation tokens are made with.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        604_800_000,
        minimum=1,
        doc="Age beyond which a delegation token cannot be renewed.",
    )
    delegation_token_expiry_time_ms: int = setting(
        86_400_000,
        minimum=1,
        doc="Time for which a delegation token is valid unless it is renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000,
        minimum=1,
        doc="Interval between searches for expired delegation tokens.",
    )
    delegation_token_max_per_owner: int = setting(
        1000,
        minimum=1,
        doc="Maximum number of delegation tokens of one owner. klamm's own key.",
    )

    # Logs: what topics inherit

    log_segment_bytes: int = setting(1_073_741_824, minimum=1_048_576, maximum=INT32_MAX, doc="Size of a segment file.")
    log_roll_hours: int = setting(168, minimum=1, doc="Age at which a segment is rolled.")
    log_roll_ms: int | None = setting(None, minimum=1, doc="Like log.roll.hours, which it overrides.")
    log_roll_jitter_hours: int = setting(0, minimum=0, doc="Largest random time by which the age is shortened.")
    log_roll_jitter_ms: int | None = setting(None, minimum=0, doc="Like log.roll.jitter.hours, which it overrides.")
    log_retention_hours: int = setting(168, minimum=-1, doc="Age at which segments are deleted; -1 is never.")
    log_retention_minutes: int | None = setting(None, minimum=-1, doc="Like log.retention.hours, which it overrides.")
    log_retention_ms: int | None = setting(None, minimum=-1, doc="Like log.retention.minutes, which it overrides.")
    log_retention_bytes: int = setting(
        -1, minimum=-1, doc="Size of a partition above which old segments are deleted; -1 is no limit."
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        doc="Treatment of old segments: delete, compact or both.",
        check=_check_cleanup_policy,
    )
    log_index_size_max_bytes: int = setting(10_485_760, minimum=4, doc="Maximum size of a segment's index.")
    log_index_interval_bytes: int = setting(4096, minimum=0, doc="Bytes of records between two index entries.")
    log_flush_interval_messages: int = setting(INT64_MAX, minimum=1, doc="Records after which a log is synced to disk.")
    log_flush_interval_ms: int | None = setting(None, minimum=0, doc="Longest time before a log is synced to disk.")
    log_message_timestamp_type: str = setting(
        "CreateTime",
        choices=TIMESTAMP_TYPES,
        doc="Timestamps of records: the producer's time, or the time of the append.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        INT64_MAX,
        minimum=0,
        doc="Longest time by which a record's timestamp may be behind the broker's clock.",
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000,
        minimum=0,
        doc="Longest time by which a record's timestamp may be ahead of the broker's clock.",
    )
    log_preallocate: bool = setting(False, doc="Accepted without effect: files grow as they are written.")
    log_segment_delete_delay_ms: int = setting(
        60_000, minimum=0, doc="Time between marking a file as deleted and removing it."
    )
    unclean_leader_election_enable: bool = setting(
        False,
        doc="Accepted and described; with one replica there is nothing to elect.",
    )

    # Telemetry of clients

    client_telemetry_enable: bool = setting(
        True,
        doc="Accept metrics of clients (KIP-714); if false, the APIs for them are not announced. klamm's own key.",
    )
    telemetry_max_bytes: int = setting(
        1_048_576, minimum=1, doc="Maximum bytes in one push of a client's metrics (KIP-714)."
    )

    # Logs: compaction

    log_cleaner_enable: bool = setting(True, doc="Compact logs whose cleanup policy includes compact.")
    log_cleaner_backoff_ms: int = setting(
        15_000,
        minimum=1,
        doc="Interval between searches for logs to compact.",
        dynamic=CLUSTER_WIDE,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5,
        minimum=0,
        maximum=1,
        doc="Share of a log that must be new before it is compacted.",
    )
    log_cleaner_delete_retention_ms: int = setting(86_400_000, minimum=0, doc="Time for which tombstones are kept.")
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, minimum=0, doc="Age that a record must have before it may be compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        INT64_MAX, minimum=1, doc="Age after which a record must be compacted."
    )

    # Logs: periodic work

    num_recovery_threads_per_data_dir: int = setting(
        2,
        minimum=1,
        doc="Threads that sync and close logs at shutdown.",
        dynamic=CLUSTER_WIDE,
    )

    log_retention_check_interval_ms: int = setting(
        300_000, minimum=1, doc="Interval between searches for old segments."
    )
    log_flush_scheduler_interval_ms: int = setting(
        INT64_MAX,
        minimum=1,
        doc="Interval between searches for logs to sync to disk.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000,
        minimum=1,
        doc="Interval between writes of the recovery points.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        60_000,
        minimum=1,
        doc="Interval between writes of the log start offsets.",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield values that contradict each other, and a key for delegation tokens that cannot be read."""
        least, most = self.log_cleaner_min_compaction_lag_ms, self.log_cleaner_max_compaction_lag_ms
        if least > most:
            message = f"{least} is greater than log.cleaner.max.compaction.lag.ms ({most})"
            yield "log.cleaner.min.compaction.lag.ms", message
        yield from self.group_type_problems()
        file = self.delegation_token_secret_key_file
        key = "delegation.token.secret.key." + ("env" if file is None else "file")
        try:
            read_secret_key(file, self.delegation_token_secret_key_env)
        except OSError as error:
            yield key, f"{file}: {error.strerror}"
        except ValueError as error:
            yield key, str(error)
