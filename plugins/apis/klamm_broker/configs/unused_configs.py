"""Broker configs that clients can change at run time in Kafka, and that have no effect here.

They concern replication, tiered storage, buffers and threads that klamm does not have. Tools set them anyway, e.g.
`kafka-reassign-partitions --throttle`. They are checked, stored and described. Facts from Kafka's
`DynamicBrokerConfig`, `CleanerConfig`, `RemoteLogManagerConfig` and `QuotaConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klamm.config import CLUSTER_WIDE
from klamm_broker.configs.broker_keys import BrokerKey, text_of
from klamm_broker.configs.topic_config import ConfigType, TopicConfig, parse_as
from klamm_broker.numbers import INT64_MAX

_MIB: Final = 1_048_576
_HALF_MIB: Final = 524_288
_LARGEST_DOUBLE: Final = "1.7976931348623157E308"
_INT: Final = ConfigType.INT
_LONG: Final = ConfigType.LONG


def _key(name: str, kind: ConfigType, default: object, doc: str, minimum: int | None = None) -> TopicConfig:
    return TopicConfig(name, kind, default, f"{doc} Has no effect here.", minimum=minimum)


_ALWAYS_DESCRIBED: Final = (
    _key("background.threads", _INT, 10, "Threads for work in the background.", 1),
    _key(
        "follower.fetch.last.tiered.offset.enable",
        ConfigType.BOOLEAN,
        False,
        "Offset at which a follower without records starts.",
    ),
    _key("group.coordinator.cached.buffer.max.bytes", _INT, 1_048_588, "Largest write buffer that is kept.", _HALF_MIB),
    _key("log.cleaner.dedupe.buffer.size", _LONG, 134_217_728, "Memory of the tables of keys.", _MIB + 1),
    _key("log.cleaner.io.buffer.load.factor", ConfigType.DOUBLE, 0.9, "Load factor of a table of keys."),
    _key("log.cleaner.io.buffer.size", _INT, 524_288, "Memory of the cleaner's buffers.", 0),
    _key(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        _LARGEST_DOUBLE,
        "Bytes that the cleaner reads and writes in a second.",
    ),
    _key("log.cleaner.threads", _INT, 1, "Threads of the log cleaner.", 1),
    _key("num.replica.fetchers", _INT, 1, "Threads that fetch from each leader.", 1),
    _key("remote.fetch.max.wait.ms", _INT, 500, "Longest wait of a Fetch of tiered records.", 1),
    _key("remote.list.offsets.request.timeout.ms", _LONG, 30_000, "Longest wait of ListOffsets of tiered records.", 1),
    _key("remote.log.index.file.cache.total.size.bytes", _LONG, 1_073_741_824, "Size of tiered indexes kept.", 1),
    _key("remote.log.manager.copier.thread.pool.size", _INT, 10, "Threads that copy tiered segments.", 1),
    _key("remote.log.manager.copy.max.bytes.per.second", _LONG, INT64_MAX, "Rate of copies to tiered storage.", 1),
    _key("remote.log.manager.expiration.thread.pool.size", _INT, 10, "Threads that delete tiered segments.", 1),
    _key("remote.log.manager.fetch.max.bytes.per.second", _LONG, INT64_MAX, "Rate of reads of tiered storage.", 1),
    _key("remote.log.manager.follower.thread.pool.size", _INT, 2, "Threads that follow tiered offsets.", 1),
    _key("remote.log.reader.threads", _INT, 10, "Threads that read tiered segments.", 1),
    _key("share.coordinator.cached.buffer.max.bytes", _INT, 1_048_588, "Largest write buffer that is kept.", _HALF_MIB),
)

_THROTTLES: Final = (
    _key("follower.replication.throttled.rate", _LONG, None, "Bytes a second of throttled followers.", 0),
    _key("leader.replication.throttled.rate", _LONG, None, "Bytes a second of throttled leaders.", 0),
    _key("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, None, "Bytes a second between log directories.", 0),
)

UNUSED_CONFIGS: Final = {each.name: each for each in (*_ALWAYS_DESCRIBED, *_THROTTLES)}
DYNAMIC_ONLY: Final = frozenset(each.name for each in _THROTTLES)
"""Configs that cannot be set in a properties file. As in Kafka, they have no default, and are described only if set."""


def unused_keys() -> Iterator[BrokerKey]:
    """Yield the descriptions of configs without effect. The nodes of one process may differ in them."""
    for each in UNUSED_CONFIGS.values():
        default = text_of(each.default)
        yield BrokerKey(each.name, default, default, each.kind, each.doc, CLUSTER_WIDE, per_node=True)


def check_unused(name: str, text: str) -> None:
    """Raise KafkaError(INVALID_CONFIG) if a config without effect cannot have this value."""
    parse_as(UNUSED_CONFIGS[name], text)
