"""The configs of a topic: Kafka's names, types, defaults, bounds and the broker configs that give their defaults.

CreateTopics, the config APIs and the log use the same table, on any thread: nothing here changes. Facts from Kafka's
`LogConfig`, `TopicConfig` and `ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.numbers import INT32_MAX, INT64_MAX

_DAY_MS: Final = 24 * 60 * 60 * 1000
LARGEST_RECORD_BYTES: Final = INT32_MAX - 8
"""The most bytes that Kafka can allocate at once: the largest record by default."""
DEAD_LETTERS_OF_GROUPS: Final = "errors.deadletterqueue.group.enable"
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class ConfigType(IntEnum):
    """`DescribeConfigsResponse.ConfigType`."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class TopicConfig(NamedTuple):
    """One config. `broker_name` is the broker config that gives its default; if several do, the most specific one.

    `minimum`, `maximum`, `excluded` and `choices` bound the value, or each item of a list. `throttled` marks a list of
    `partition:broker` pairs or the one item `*`.
    """

    name: str
    kind: ConfigType
    default: Any
    doc: str
    broker_name: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    excluded: int | None = None
    choices: tuple[str, ...] = ()
    throttled: bool = False


def _table(*entries: TopicConfig) -> Mapping[str, TopicConfig]:
    return MappingProxyType({entry.name: entry for entry in entries})


_DOCS: Final = {
    "cleanup.policy": "Treatment of old segments: delete drops them, compact keeps the last record of each key.",
    "compression.gzip.level": "Level when the broker compresses with gzip, 1 to 9; -1 is the codec's own default.",
    "compression.lz4.level": "Level when the broker compresses with lz4.",
    "compression.type": "Codec of stored batches; producer keeps each batch unchanged.",
    "compression.zstd.level": "Level when the broker compresses with zstd.",
    "delete.retention.ms": "Time for which compaction keeps tombstones and transaction markers after it has first"
    " seen them.",
    DEAD_LETTERS_OF_GROUPS: "Allow share groups to use this topic as their dead-letter topic.",
    "file.delete.delay.ms": "Time between marking a file as deleted and removing it from the disk.",
    "flush.messages": "Records after which a log is synced to the disk.",
    "flush.ms": "Longest time before a log is synced to the disk.",
    "follower.replication.throttled.replicas": "Followers whose replication is throttled. There are none here.",
    "index.interval.bytes": "Bytes of records between two entries of an index.",
    "internal.segment.bytes": "Like segment.bytes, which it overrides, but without its lower bound: for tests.",
    "leader.replication.throttled.replicas": "Leaders whose replication is throttled. There are none here.",
    "local.retention.bytes": "Size kept locally with remote storage. There is no remote storage.",
    "local.retention.ms": "Age kept locally with remote storage. There is no remote storage.",
    "max.compaction.lag.ms": "Age at which a record is due for compaction, however little there is to gain.",
    "max.decompressed.message.bytes": "Largest record of a compressed batch, decompressed; a larger one is refused"
    " with INVALID_RECORD.",
    "max.message.bytes": "Largest batch of records, in its compressed size.",
    "message.timestamp.after.max.ms": "Longest time by which a record's timestamp may be ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "Longest time by which a record's timestamp may be behind the broker's clock.",
    "message.timestamp.type": "Timestamps of records: the producer's time, or the time of the append.",
    "min.cleanable.dirty.ratio": "Share of a log that must be new since the last compaction to start one.",
    "min.compaction.lag.ms": "Age below which compaction does not touch a record.",
    "min.insync.replicas": "Replicas that must have a record before acks=all is answered.",
    "preallocate": "Accepted without effect: files grow as they are written.",
    "remote.copy.lag.bytes": "Bytes of newer segments after which a segment moves to remote storage. There is no"
    " remote storage.",
    "remote.copy.lag.ms": "Age at which a segment moves to remote storage. There is no remote storage.",
    "remote.log.copy.disable": "Stop copying to remote storage. There is no remote storage.",
    "remote.log.delete.on.disable": "Delete remote data when remote storage is switched off. There is no"
    " remote storage.",
    "remote.storage.enable": "Copy segments to remote storage. Only false works.",
    "retention.bytes": "Size of a partition above which old segments are deleted; -1 is no limit.",
    "retention.ms": "Age at which segments are deleted; -1 is never.",
    "segment.bytes": "Size at which a segment is rolled.",
    "segment.index.bytes": "Size of an index at which its segment is rolled.",
    "segment.jitter.ms": "Largest random time by which segment.ms is shortened, so that not all segments roll at once.",
    "segment.ms": "Age at which a segment is rolled, full or not.",
    "unclean.leader.election.enable": "Allow a lagging replica to become leader. There is only one replica.",
}


def _entry(
    name: str,
    kind: ConfigType,
    default: Any,
    broker_name: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    **more: Any,
) -> TopicConfig:
    return TopicConfig(name, kind, default, _DOCS[name], broker_name, minimum, maximum, **more)


TOPIC_CONFIGS: Final = _table(
    _entry("cleanup.policy", ConfigType.LIST, ("delete",), "log.cleanup.policy", choices=("compact", "delete")),
    _entry("compression.gzip.level", ConfigType.INT, -1, "compression.gzip.level", -1, 9, excluded=0),
    _entry("compression.lz4.level", ConfigType.INT, 9, "compression.lz4.level", 1, 17),
    _entry("compression.type", ConfigType.STRING, "producer", "compression.type", choices=COMPRESSION_TYPES),
    _entry("compression.zstd.level", ConfigType.INT, 3, "compression.zstd.level", -131072, 22),
    _entry("delete.retention.ms", ConfigType.LONG, _DAY_MS, "log.cleaner.delete.retention.ms", 0),
    _entry(DEAD_LETTERS_OF_GROUPS, ConfigType.BOOLEAN, False),
    _entry("file.delete.delay.ms", ConfigType.LONG, 60_000, "log.segment.delete.delay.ms", 0),
    _entry("flush.messages", ConfigType.LONG, INT64_MAX, "log.flush.interval.messages", 1),
    _entry("flush.ms", ConfigType.LONG, INT64_MAX, "log.flush.interval.ms", 0),
    _entry("follower.replication.throttled.replicas", ConfigType.LIST, (), throttled=True),
    _entry("index.interval.bytes", ConfigType.INT, 4096, "log.index.interval.bytes", 0),
    _entry("leader.replication.throttled.replicas", ConfigType.LIST, (), throttled=True),
    _entry("local.retention.bytes", ConfigType.LONG, -2, "log.local.retention.bytes", -2),
    _entry("local.retention.ms", ConfigType.LONG, -2, "log.local.retention.ms", -2),
    _entry("max.compaction.lag.ms", ConfigType.LONG, INT64_MAX, "log.cleaner.max.compaction.lag.ms", 1),
    _entry(
        "max.decompressed.message.bytes",
        ConfigType.INT,
        LARGEST_RECORD_BYTES,
        "max.decompressed.message.bytes",
        1,
        LARGEST_RECORD_BYTES,
    ),
    _entry("max.message.bytes", ConfigType.INT, 1_048_588, "message.max.bytes", 0),
    _entry("message.timestamp.after.max.ms", ConfigType.LONG, 3_600_000, "log.message.timestamp.after.max.ms", 0),
    _entry("message.timestamp.before.max.ms", ConfigType.LONG, INT64_MAX, "log.message.timestamp.before.max.ms", 0),
    _entry(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    _entry("min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio", 0, 1),
    _entry("min.compaction.lag.ms", ConfigType.LONG, 0, "log.cleaner.min.compaction.lag.ms", 0),
    _entry("min.insync.replicas", ConfigType.INT, 1, "min.insync.replicas", 1),
    _entry("preallocate", ConfigType.BOOLEAN, False, "log.preallocate"),
    _entry("remote.copy.lag.bytes", ConfigType.LONG, -1, "log.remote.copy.lag.bytes", -1),
    _entry("remote.copy.lag.ms", ConfigType.LONG, 0, "log.remote.copy.lag.ms", -1),
    _entry("remote.log.copy.disable", ConfigType.BOOLEAN, False),
    _entry("remote.log.delete.on.disable", ConfigType.BOOLEAN, False),
    _entry("remote.storage.enable", ConfigType.BOOLEAN, False),
    _entry("retention.bytes", ConfigType.LONG, -1, "log.retention.bytes"),
    _entry("retention.ms", ConfigType.LONG, 7 * _DAY_MS, "log.retention.ms", -1),
    _entry("segment.bytes", ConfigType.INT, 1_073_741_824, "log.segment.bytes", 1_048_576),
    _entry("segment.index.bytes", ConfigType.INT, 10_485_760, "log.index.size.max.bytes", 4),
    _entry("segment.jitter.ms", ConfigType.LONG, 0, "log.roll.jitter.ms", 0),
    _entry("segment.ms", ConfigType.LONG, 7 * _DAY_MS, "log.roll.ms", 1),
    _entry("unclean.leader.election.enable", ConfigType.BOOLEAN, False, "unclean.leader.election.enable"),
)

INTERNAL_CONFIGS: Final = _table(_entry("internal.segment.bytes", ConfigType.INT, None))
"""Configs that can be set, but are described only for topics that have them set, as in Kafka."""

_THROTTLED_REPLICA: Final = r"\d+:\d+"
_LIST_SEPARATOR: Final = r"\s*,\s*"


def parse(name: str, text: str) -> Any:
    """Return the value of a topic config: bool, int, float, str, or a tuple of str for a list.

    Raises KafkaError(INVALID_CONFIG) if the config does not exist or cannot have this value.
    """
    config = TOPIC_CONFIGS.get(name) or INTERNAL_CONFIGS.get(name)
    if config is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    return parse_as(config, text)


def parse_as(config: TopicConfig, text: str) -> Any:
    """Return the value of this config, like `parse`. Raises KafkaError(INVALID_CONFIG)."""
    try:
        value = _PARSERS[config.kind](text.strip())
        _check(config, value)
    except ValueError as error:
        message = f"Invalid value {text} for configuration {config.name}: {error}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message) from None
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _int(text: str) -> int:
    return _whole_number(text, INT32_MAX, "int")


def _long(text: str) -> int:
    return _whole_number(text, INT64_MAX, "long")


def _whole_number(text: str, maximum: int, kind: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -maximum - 1 <= int(text) <= maximum:
        raise ValueError(f"Not a number of type {kind.upper()}")
    return int(text)


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("Not a number of type DOUBLE") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.split(_LIST_SEPARATOR, text))) if text else ()


_PARSERS: Final[dict[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.INT: _int,
    ConfigType.LONG: _long,
    ConfigType.DOUBLE: _double,
    ConfigType.STRING: str,
    ConfigType.LIST: _list,
}


def _check(config: TopicConfig, value: Any) -> None:
    if config.minimum is not None and value < config.minimum:
        raise ValueError(f"Value must be at least {config.minimum}")
    if config.maximum is not None and value > config.maximum:
        raise ValueError(f"Value must be no more than {config.maximum}")
    if config.excluded is not None and value == config.excluded:
        raise ValueError(f"Value must not be {config.excluded}")
    items = value if config.kind is ConfigType.LIST else (value,)
    if config.choices:
        for item in items:
            if item not in config.choices:
                raise ValueError(f"String must be one of: {', '.join(config.choices)}")
    if config.throttled and items != ("*",):
        for item in items:
            if not re.fullmatch(_THROTTLED_REPLICA, item):
                raise ValueError("Items must be partition:broker pairs, or the only item must be *")
