"""`LogConfig`: the settings of one log, ready for use. `ConfigRegistry` makes it, and any thread may read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from klamm import ErrorCode, KafkaError
from klamm.wire.compression import Codec
from klamm_broker.configs.topic_config import INTERNAL_CONFIGS, TOPIC_CONFIGS, parse
from klamm_broker.numbers import INT64_MAX

_NO_VALUES: Final[Mapping[str, str]] = {}
_CODECS: Final = {"uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in Codec if codec}


class LogConfig:
    """The configs of a topic, parsed from texts by Kafka's names. Missing configs have Kafka's defaults. Immutable.

    Attributes are the configs' names with underscores. Source: Kafka's `LogConfig`. These attributes are derived:

    `codec`             the codec in which the broker compresses, at `codec_level`; None keeps the producer's codec.
    `compact`, `delete` True if the cleanup policy contains the word.
    `log_append_time`   True if records get the broker's timestamps.
    `roll_ms`           `segment.ms`; in a compacted topic at most `max.compaction.lag.ms`.
    `has_earliest_timestamp`  True if records can be too old.
    `prepares_all`      True if each batch must be read before it is stored.

    Raises KafkaError(INVALID_CONFIG) for unknown names, bad values, and values that contradict each other.
    """

    __slots__ = (
        "cleanup_policy",
        "codec",
        "codec_level",
        "compact",
        "delete",
        "delete_retention_ms",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "has_earliest_timestamp",
        "index_interval_bytes",
        "log_append_time",
        "max_compaction_lag_ms",
        "max_decompressed_message_bytes",
        "max_message_bytes",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "prepares_all",
        "retention_bytes",
        "retention_ms",
        "roll_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_jitter_ms",
        "segment_ms",
    )

    def __init__(self, values: Mapping[str, str] = _NO_VALUES) -> None:
        parsed = {name: parse(name, text) for name, text in values.items()}

        def value(name: str) -> Any:
            if name in parsed:
                return parsed[name]
            return (TOPIC_CONFIGS.get(name) or INTERNAL_CONFIGS[name]).default

        self.cleanup_policy: tuple[str, ...] = value("cleanup.policy")
        self.compact = "compact" in self.cleanup_policy
        self.delete = "delete" in self.cleanup_policy
        compression_type: str = value("compression.type")
        self.codec = _CODECS.get(compression_type)
        level = value(f"compression.{compression_type}.level") if compression_type in ("gzip", "lz4", "zstd") else None
        self.codec_level: int | None = None if compression_type == "gzip" and level == -1 else level
        self.delete_retention_ms: int = value("delete.retention.ms")
        self.file_delete_delay_ms: int = value("file.delete.delay.ms")
        self.flush_messages: int = value("flush.messages")
        self.flush_ms: int = value("flush.ms")
        self.index_interval_bytes: int = value("index.interval.bytes")
        self.max_compaction_lag_ms: int = value("max.compaction.lag.ms")
        self.max_decompressed_message_bytes: int = value("max.decompressed.message.bytes")
        self.max_message_bytes: int = value("max.message.bytes")
        self.message_timestamp_after_max_ms: int = value("message.timestamp.after.max.ms")
        self.message_timestamp_before_max_ms: int = value("message.timestamp.before.max.ms")
        self.log_append_time: bool = value("message.timestamp.type") == "LogAppendTime"
        self.min_cleanable_dirty_ratio: float = value("min.cleanable.dirty.ratio")
        self.min_compaction_lag_ms: int = value("min.compaction.lag.ms")
        self.retention_bytes: int = value("retention.bytes")
        self.retention_ms: int = value("retention.ms")
        self.segment_bytes: int = value("internal.segment.bytes") or value("segment.bytes")
        self.segment_index_bytes: int = value("segment.index.bytes")
        self.segment_jitter_ms: int = value("segment.jitter.ms")
        self.segment_ms: int = value("segment.ms")
        self.roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms
        self.has_earliest_timestamp = not self.log_append_time and self.message_timestamp_before_max_ms < INT64_MAX
        self.prepares_all = (
            self.log_append_time or self.codec is not None or self.compact or self.has_earliest_timestamp
        )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is greater than max.compaction.lag.ms"
                f" ({self.max_compaction_lag_ms})",
            )
        if value("remote.storage.enable"):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "There is no remote storage: remote.storage.enable must be false"
            )
