"""The configs of a topic: Kafka's names, types, defaults, bounds and the broker configs that give their defaults.

CreateTopics, the config APIs and the log use the same table. Facts from Kafka's `LogConfig`, `TopicConfig` and
`ServerTopicConfigSynonyms`.
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


TOPIC_CONFIGS: Final = _table(
    TopicConfig(
        "cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        "Treatment of old segments: delete drops them, compact keeps the last record of each key.",
        "log.cleanup.policy",
        choices=("compact", "delete"),
    ),
    TopicConfig(
        "compression.gzip.level",
        ConfigType.INT,
        -1,
        "Level when the broker compresses with gzip, 1 to 9; -1 is the codec's own default.",
        "compression.gzip.level",
        -1,
        9,
        excluded=0,
    ),
    TopicConfig(
        "compression.lz4.level",
        ConfigType.INT,
        9,
        "Level when the broker compresses with lz4.",
        "compression.lz4.level",
        1,
        17,
    ),
    TopicConfig(
        "compression.type",
        ConfigType.STRING,
        "producer",
        "Codec of stored batches; producer keeps each batch unchanged.",
        "compression.type",
        choices=COMPRESSION_TYPES,
    ),
    TopicConfig(
        "compression.zstd.level",
        ConfigType.INT,
        3,
        "Level when the broker compresses with zstd.",
        "compression.zstd.level",
        -131072,
        22,
    ),
    TopicConfig(
        "delete.retention.ms",
        ConfigType.LONG,
        _DAY_MS,
        "Time for which compaction keeps tombstones and transaction markers after it has first seen them.",
        "log.cleaner.delete.retention.ms",
        0,
    ),
    TopicConfig(
        DEAD_LETTERS_OF_GROUPS,
        ConfigType.BOOLEAN,
        False,
        "Allow share groups to use this topic as their dead-letter topic.",
    ),
    TopicConfig(
        "file.delete.delay.ms",
        ConfigType.LONG,
        60_000,
        "Time between marking a file as deleted and removing it from the disk.",
        "log.segment.delete.delay.ms",
        0,
    ),
    TopicConfig(
        "flush.messages",
        ConfigType.LONG,
        INT64_MAX,
        "Records after which a log is synced to the disk.",
        "log.flush.interval.messages",
        1,
    ),
    TopicConfig(
        "flush.ms",
        ConfigType.LONG,
        INT64_MAX,
        "Longest time before a log is synced to the disk.",
        "log.flush.interval.ms",
        0,
    ),
    TopicConfig(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Followers whose replication is throttled. There are none here.",
        throttled=True,
    ),
    TopicConfig(
        "index.interval.bytes",
        ConfigType.INT,
        4096,
        "Bytes of records between two entries of an index.",
        "log.index.interval.bytes",
        0,
    ),
    TopicConfig(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "Leaders whose replication is throttled. There are none here.",
        throttled=True,
    ),
    TopicConfig(
        "local.retention.bytes",
        ConfigType.LONG,
        -2,
        "Size kept locally with remote storage. There is no remote storage.",
        "log.local.retention.bytes",
        -2,
    ),
    TopicConfig(
        "local.retention.ms",
        ConfigType.LONG,
        -2,
        "Age kept locally with remote storage. There is no remote storage.",
        "log.local.retention.ms",
        -2,
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        INT64_MAX,
        "Age at which a record is due for compaction, however little there is to gain.",
        "log.cleaner.max.compaction.lag.ms",
        1,
    ),
    TopicConfig(
        "max.decompressed.message.bytes",
        ConfigType.INT,
        LARGEST_RECORD_BYTES,
        "Largest record of a compressed batch, decompressed; a larger one is refused with INVALID_RECORD.",
        "max.decompressed.message.bytes",
        1,
        LARGEST_RECORD_BYTES,
    ),
    TopicConfig(
        "max.message.bytes",
        ConfigType.INT,
        1_048_588,
        "Largest batch of records, in its compressed size.",
        "message.max.bytes",
        0,
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        3_600_000,
        "Longest time by which a record's timestamp may be ahead of the broker's clock.",
        "log.message.timestamp.after.max.ms",
        0,
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        INT64_MAX,
        "Longest time by which a record's timestamp may be behind the broker's clock.",
        "log.message.timestamp.before.max.ms",
        0,
    ),
    TopicConfig(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        "Timestamps of records: the producer's time, or the time of the append.",
        "log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        0.5,
        "Share of a log that must be new since the last compaction to start one.",
        "log.cleaner.min.cleanable.ratio",
        0,
        1,
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        0,
        "Age below which compaction does not touch a record.",
        "log.cleaner.min.compaction.lag.ms",
        0,
    ),
    TopicConfig(
        "min.insync.replicas",
        ConfigType.INT,
        1,
        "Replicas that must have a record before acks=all is answered.",
        "min.insync.replicas",
        1,
    ),
    TopicConfig(
        "preallocate",
        ConfigType.BOOLEAN,
        False,
        "Accepted without effect: files grow as they are written.",
        "log.preallocate",
    ),
    TopicConfig(
        "remote.copy.lag.bytes",
        ConfigType.LONG,
        -1,
        "Bytes of newer segments after which a segment moves to remote storage. There is no remote storage.",
        "log.remote.copy.lag.bytes",
        -1,
    ),
    TopicConfig(
        "remote.copy.lag.ms",
        ConfigType.LONG,
        0,
        "Age at which a segment moves to remote storage. There is no remote storage.",
        "log.remote.copy.lag.ms",
        -1,
    ),
    TopicConfig(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        False,
        "Stop copying to remote storage. There is no remote storage.",
    ),
    TopicConfig(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        False,
        "Delete remote data when remote storage is switched off. There is no remote storage.",
    ),
    TopicConfig(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        False,
        "Copy segments to remote storage. Only false works.",
    ),
    TopicConfig(
        "retention.bytes",
        ConfigType.LONG,
        -1,
        "Size of a partition above which old segments are deleted; -1 is no limit.",
        "log.retention.bytes",
    ),
    TopicConfig(
        "retention.ms",
        ConfigType.LONG,
        7 * _DAY_MS,
        "Age at which segments are deleted; -1 is never.",
        "log.retention.ms",
        -1,
    ),
    TopicConfig(
        "segment.bytes",
        ConfigType.INT,
        1_073_741_824,
        "Size at which a segment is rolled.",
        "log.segment.bytes",
        1_048_576,
    ),
    TopicConfig(
        "segment.index.bytes",
        ConfigType.INT,
        10_485_760,
        "Size of an index at which its segment is rolled.",
        "log.index.size.max.bytes",
        4,
    ),
    TopicConfig(
        "segment.jitter.ms",
        ConfigType.LONG,
        0,
        "Largest random time by which segment.ms is shortened, so that not all segments roll at once.",
        "log.roll.jitter.ms",
        0,
    ),
    TopicConfig(
        "segment.ms",
        ConfigType.LONG,
        7 * _DAY_MS,
        "Age at which a segment is rolled, full or not.",
        "log.roll.ms",
        1,
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        False,
        "Allow a lagging replica to become leader. There is only one replica.",
        "unclean.leader.election.enable",
    ),
)

INTERNAL_CONFIGS: Final = _table(
    TopicConfig(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        "Like segment.bytes, which it overrides, but without its lower bound: for tests.",
    ),
)
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
