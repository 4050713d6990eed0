"""The values of random requests: for each field a value that a client would send, and now and then another."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

ODD: Final = 0.12
"""The share of values that no client would send."""
TOPICS: Final = ("{p}a", "{p}b")
LABELS: Final = ("m0", "m1", "m2")


class Made(NamedTuple):
    """A struct of a request whose `Ref`s are not yet replaced by a server's own values."""

    kind: Any
    fields: dict[str, Any]


class Ref(NamedTuple):
    """A value that a server has assigned. `plus` is added to a number."""

    kind: str
    key: str
    plus: int = 0


class Batch(NamedTuple):
    """Records to produce. The sequence number is the producer's next one in the partition, plus `gap`."""

    producer: str | None
    topic: str
    partition: int
    records: int = 1
    gap: int = 0
    epoch_plus: int = 0
    transactional: bool = False
    codec: int = 0
    damage: str = ""


class Family(NamedTuple):
    """APIs that belong together, with weights."""

    apis: Mapping[str, float]
    partitions: int = 2
    producers: tuple[str, ...] = ("",)
    groups: tuple[str, ...] = ("{p}g",)


@dataclass(frozen=True)
class Chooser:
    """Values on which the fields of one request agree."""

    rng: random.Random
    family: Family
    api: str
    version: int
    topic: str = TOPICS[0]
    producer: str = ""
    group: str = ""
    label: str = "m0"

    def __post_init__(self) -> None:
        if not self.group:
            object.__setattr__(self, "group", self.rng.choice(self.family.groups))
            object.__setattr__(self, "label", self.rng.choice(LABELS))
            object.__setattr__(self, "producer", self.any_producer())

    def one(self, *usual: Any, odd: tuple[Any, ...] = ()) -> Any:
        return self.rng.choice(odd if odd and self.rng.random() < ODD else usual)

    def any_topic(self) -> str:
        return str(self.one(*TOPICS, odd=("{p}none", "a b", "", "{p}none2")))

    def any_producer(self) -> str:
        return self.rng.choice(self.family.producers)


Pool = Callable[[Chooser], Any]


def fixed(*usual: Any, odd: tuple[Any, ...] = ()) -> Pool:
    return lambda chooser: chooser.one(*usual, odd=odd)


def _producer_id(c: Chooser) -> Any:
    return c.one(Ref("producer_id", c.producer), odd=(-1, 123456, Ref("producer_id", c.any_producer())))


def _producer_epoch(c: Chooser) -> Any:
    ref = Ref("producer_epoch", c.producer)
    return c.one(ref, odd=(ref._replace(plus=1), ref._replace(plus=-1), -1, 0))


def _init_producer_id(c: Chooser) -> Any:
    return c.one(-1, -1, Ref("producer_id", c.producer), odd=(-2, 77))


def _init_epoch(c: Chooser) -> Any:
    ref = Ref("producer_epoch", c.producer)
    return c.one(-1, ref, odd=(ref._replace(plus=1), ref._replace(plus=-1), -2))


def _records(c: Chooser) -> Any:
    producer = c.producer if c.rng.random() < 0.8 else None
    transactional = bool(producer) and c.rng.random() < 0.95
    return Batch(
        producer,
        c.topic,
        0,
        c.one(1, 1, 2, 3),
        c.one(0, odd=(1, -1, -2, 5, -5)),
        c.one(0, odd=(1, -1)),
        transactional,
        c.one(0, 0, 1, 2, 3, 4),
        c.one("", "", "", odd=("crc", "cut", "twice", "empty", "null-key")),
    )


def _member(c: Chooser) -> Any:
    return c.one(Ref("member_id", c.group + c.label), odd=("", "nobody", Ref("member_id", c.group + "m2")))


def _member_epoch(c: Chooser) -> Any:
    ref = Ref("member_epoch", c.group + c.label)
    return c.one(ref, ref, ref, ref, 0, -1, odd=(ref._replace(plus=1), ref._replace(plus=-1), -2, -3, 99))


def _generation(c: Chooser) -> Any:
    ref = Ref("generation", c.group)
    return c.one(ref, ref, ref, odd=(ref._replace(plus=1), ref._replace(plus=-1), -1, 0))


def _commit_epoch(c: Chooser) -> Any:
    classic = Ref("generation", c.group)
    epoch = Ref("member_epoch", c.group + c.label)
    ref = epoch if {"ConsumerGroupHeartbeat", "StreamsGroupHeartbeat"} & c.family.apis.keys() else classic
    return c.one(ref, ref, ref, odd=(ref._replace(plus=1), ref._replace(plus=-1), -1, 0))


def _new_member(c: Chooser) -> Any:
    if c.version == 0 and c.api == "ConsumerGroupHeartbeat":
        return _member(c)
    return c.one(Ref("chosen_member", c.group + c.label), odd=("", "nobody", "x" * 40))


CONFIGS: Final = (
    ("retention.ms", "cleanup.policy", "max.message.bytes", "compression.type", "segment.bytes", "bogus", "")
    + ("message.timestamp.type", "unclean.leader.election.enable", "flush.messages", "local.retention.ms")
    + ("retention.bytes", "min.cleanable.dirty.ratio", "file.delete.delay.ms", "remote.storage.enable")
    + ("index.interval.bytes", "segment.ms", "delete.retention.ms", "preallocate", "segment.jitter.ms")
    + ("consumer.session.timeout.ms", "share.record.lock.duration.ms", "interval.ms", "metrics", "match")
    + ("consumer.heartbeat.interval.ms", "share.auto.offset.reset", "share.isolation.level")
    + ("leader.replication.throttled.replicas", "compression.gzip.level", "compression.zstd.level")
    + ("message.timestamp.before.max.ms", "max.compaction.lag.ms", "min.compaction.lag.ms")
    + ("errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable")
    + ("errors.deadletterqueue.group.enable", "streams.num.standby.replicas", "streams.session.timeout.ms")
    + ("streams.assignor.name", "streams.rack.aware.assignment.tags", "streams.initial.rebalance.delay.ms")
)


def _config_name(c: Chooser) -> Any:
    return c.rng.choice(CONFIGS)


def _config_value(c: Chooser) -> Any:
    values: tuple[str | None, ...] = (
        "1",
        "0",
        "-1",
        "100000",
        "delete",
        "compact",
        "compact,delete",
        "true",
        "false",
        "",
        "abc",
        "0.5",
        None,
    )
    values += ("producer", "gzip", "LogAppendTime", "CreateTime", "latest", "earliest", "45000", "10000", " 5 ", "9")
    values += ("dlq.x", "dlq.", "__x", "sticky", "zone,rack")
    values += ("*", "0:1", "by_duration:PT1H", "read_committed", "1048576", "9223372036854775807", "2147483648", "TRUE")
    return c.rng.choice(values)


def _resource_name(c: Chooser) -> Any:
    return c.one("{p}a", "{p}b", "{p}g", "{p}m", "1", "", odd=("2", "a b", "x" * 260, "{p}none", "INFO"))


PARTITION: Final = fixed(0, 0, 0, 1, odd=(-1, 2, 99))
OFFSET: Final = fixed(0, 1, 2, 3, 5, odd=(-1, -2, 100, 2**40))
EPOCH: Final = fixed(-1, -1, 0, odd=(1, -2, 7))
GROUP: Final[Pool] = lambda c: c.one(c.group, odd=("", "{p}other", "{p}none"))  # noqa: E731
NAMES: Final[Pool] = lambda c: c.one(c.topic, c.topic, odd=("a/b", "x" * 250, ".."))  # noqa: E731
INSTANCE: Final[Pool] = lambda c: c.one(None, None, None, f"i-{c.label}", odd=("", "i-m0"))  # noqa: E731
PRODUCER: Final[Pool] = lambda c: c.one(c.producer, c.producer, odd=("", "{p}nobody"))  # noqa: E731

_POOLS: Final[dict[str, Pool]] = {
    "name": NAMES,
    "topic": NAMES,
    "topic_name": NAMES,
    "topic_names": NAMES,
    "topic_id": lambda c: c.one(Ref("topic_id", c.topic), odd=(b"\7" * 16,)),
    "partition_index": PARTITION,
    "partition": PARTITION,
    "partitions": PARTITION,
    "index": PARTITION,
    "partition_indexes": PARTITION,
    "CreatePartitions.count": fixed(3, 4, odd=(1, 2, 0, -1, 5)),
    "broker_ids": fixed(1, odd=(0, 2, -1)),
    "replicas": fixed(1, odd=(0, 2, -1)),
    "CreateTopics.num_partitions": fixed(1, 2, -1, odd=(0, -2)),
    "CreateTopics.replication_factor": fixed(1, -1, odd=(0, 2, -2)),
    "DescribeTopicPartitions.response_partition_limit": fixed(2000, 1, 2, odd=(0, -1)),
    "timeout_ms": fixed(5000),
    "max_wait_ms": fixed(0, 0, 10),
    "min_bytes": fixed(0, 1, odd=(-1, 1000)),
    "max_bytes": fixed(1 << 20, 1 << 20, odd=(0, 1, 100)),
    "partition_max_bytes": fixed(1 << 20, 1 << 20, 100, odd=(0, 1)),
    "isolation_level": fixed(0, 1),
    "session_id": lambda c: c.one(0, Ref("session_id", c.label), Ref("session_id", c.label), odd=(12345,)),
    "session_epoch": lambda c: c.one(
        *(-1, 0, Ref("session_epoch", c.label), Ref("session_epoch", c.label)),
        odd=(1, Ref("session_epoch", c.label, 1), -2),
    ),
    "replica_id": fixed(-1),
    "replica_state": fixed(None),
    "rack_id": fixed("", "", "r"),
    "fetch_offset": OFFSET,
    "log_start_offset": fixed(-1),
    "last_fetched_epoch": fixed(-1),
    "current_leader_epoch": EPOCH,
    "leader_epoch": EPOCH,
    "committed_leader_epoch": fixed(-1, 0, odd=(5,)),
    "timestamp": fixed(-1, -2, -3, -4, -5, 0, odd=(-6, -7, 2**60, 1)),
    "offset": OFFSET,
    "committed_offset": OFFSET,
    "committed_metadata": fixed("", "meta", None, odd=("x" * 4097,)),
    "retention_time_ms": fixed(-1, 1000),
    "acks": fixed(-1, 1),
    "records": _records,
    "Produce.transactional_id": lambda c: c.one(c.producer or None, odd=(None, "{p}nobody")),
    "InitProducerId.transactional_id": lambda c: c.one(c.producer or None, odd=("", "{p}new")),
    "transactional_id": PRODUCER,
    "transactional_ids": PRODUCER,
    "v3_and_below_transactional_id": PRODUCER,
    "InitProducerId.producer_id": _init_producer_id,
    "InitProducerId.producer_epoch": _init_epoch,
    "producer_id": _producer_id,
    "v3_and_below_producer_id": _producer_id,
    "producer_epoch": _producer_epoch,
    "v3_and_below_producer_epoch": _producer_epoch,
    "transaction_timeout_ms": fixed(60000, odd=(0, -1, 2**31 - 1)),
    "enable2_pc": fixed(False, odd=(True,)),
    "keep_prepared_txn": fixed(False, odd=(True,)),
    "verify_only": fixed(False, odd=(True,)),
    "state_filters": fixed("Ongoing", "Empty", "CompleteCommit", "CompleteAbort", odd=("bogus", "ongoing", "")),
    "producer_id_filters": lambda c: c.one(Ref("producer_id", c.producer), odd=(5, -1)),
    "duration_filter": fixed(-1, 0, odd=(100000,)),
    "transactional_id_pattern": fixed(None, "{p}.*", ".*", odd=("", "[", "{p}t")),
    "group_id": GROUP,
    "group_ids": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "FindCoordinator.key": lambda c: c.one(c.group, "", "x"),
    "coordinator_keys": lambda c: c.one(c.group, c.group, "", "x"),
    "key_type": fixed(0, 1, odd=(2, 3, -1)),
    "states_filter": fixed(
        "Stable", "Empty", "PreparingRebalance", "stable", "Assigning", odd=("bogus", "", "Unknown")
    ),
    "types_filter": fixed("classic", "consumer", "share", "streams", "Classic", odd=("bogus", "")),
    "member_id": _member,
    "ConsumerGroupHeartbeat.member_id": _new_member,
    "ShareGroupHeartbeat.member_id": _new_member,
    "StreamsGroupHeartbeat.member_id": _new_member,
    "StreamsGroupTopologyDescriptionUpdate.member_id": _new_member,
    "ShareFetch.member_id": _new_member,
    "ShareAcknowledge.member_id": _new_member,
    "ShareFetch.max_wait_ms": fixed(200),
    "ShareFetch.min_bytes": fixed(1),
    "ShareFetch.max_records": fixed(500, 2, 1, odd=(0, -1)),
    "ShareFetch.batch_size": fixed(500, 1, 2, odd=(0,)),
    "share_acquire_mode": fixed(0, 1, odd=(2,)),
    "is_renew_ack": fixed(False, False, odd=(True,)),
    "share_session_epoch": lambda c: c.one(
        *[Ref("share_epoch", c.group + c.label)] * 5, 0, -1, odd=(Ref("share_epoch", c.group + c.label, 1), 50, -2)
    ),
    "first_offset": fixed(0, 0, 1, 2, odd=(-1, 50)),
    "last_offset": fixed(0, 1, 1, 2, 3, odd=(-1, 60)),
    "acknowledge_types": fixed(1, 2, 3, odd=(0, 4, 5, -1)),
    "start_offset": fixed(0, 1, 2, odd=(-1, -2, 100)),
    "member_epoch": _member_epoch,
    "OffsetFetch.member_epoch": lambda c: c.one(-1, Ref("member_epoch", c.group + c.label), odd=(5, -2)),
    "generation_id": _generation,
    "generation_id_or_member_epoch": _commit_epoch,
    "group_instance_id": INSTANCE,
    "instance_id": INSTANCE,
    "session_timeout_ms": fixed(30000, odd=(0, -1, 10, 2**31 - 1)),
    "rebalance_timeout_ms": fixed(10000, odd=(-1, 0, 5)),
    "ConsumerGroupHeartbeat.rebalance_timeout_ms": fixed(10000, -1, odd=(0, -2)),
    "JoinGroup.protocol_type": fixed("consumer", odd=("", "other")),
    "SyncGroup.protocol_type": fixed("consumer", None, odd=("", "other")),
    "SyncGroup.protocol_name": fixed("range", None, odd=("other", "")),
    "JoinGroup.name": fixed("range", "range", odd=("other",)),
    "JoinGroup.metadata": fixed(b"", b"\0\1\0\0\0\0\0\0\0\0"),
    "assignment": fixed(b"", b"abc"),
    "reason": fixed(None, "why"),
    "subscribed_topic_names": lambda c: c.one("{p}a", "{p}b", odd=("{p}none", "", "a b")),
    "subscribed_topic_regex": fixed(None, None, "", "{p}.*", odd=("[", "nothing")),
    "server_assignor": fixed(None, "uniform", "range", odd=("", "bogus")),
    "CreateTopics.value": _config_value,
    "AlterConfigs.value": _config_value,
    "IncrementalAlterConfigs.value": _config_value,
    "configuration_keys": _config_name,
    "AlterConfigs.name": _config_name,
    "IncrementalAlterConfigs.name": _config_name,
    "config_operation": fixed(0, 0, 0, 1, 2, 3),
    "AlterConfigs.resource_type": fixed(2, 2, 16, 32),
    "IncrementalAlterConfigs.resource_type": fixed(2, 2, 16, 32),
    "DescribeConfigs.resource_type": fixed(2, 2, 16),
    "AlterConfigs.resource_name": _resource_name,
    "IncrementalAlterConfigs.resource_name": _resource_name,
    "DescribeConfigs.resource_name": _resource_name,
    "resource_types": fixed(2, 16, 32, 4, 8, odd=(0, 1, 3, 64)),
    "resource_type": fixed(2, 3, 4, 5, 6, 7),
    "resource_type_filter": fixed(1, 2, 3, 4, odd=(5, 6, 7)),
    "CreateAcls.resource_name": fixed("{p}a", "*", "{p}b", "kafka-cluster", odd=("", "User:x")),
    "resource_name_filter": fixed(None, "{p}a", "*", "{p}b", "{p}abc", odd=("",)),
    "resource_pattern_type": fixed(3, 4),
    "pattern_type_filter": fixed(1, 2, 3, 4),
    "CreateAcls.principal": fixed("User:{p}", "User:*", odd=("bogus", "", "Group:x", "User:", ":")),
    "principal_filter": fixed(None, "User:{p}", odd=("User:*", "bogus", "")),
    "CreateAcls.host": fixed("*", "127.0.0.1", odd=("", "10.0.0.0/8", "host")),
    "host_filter": fixed(None, "*", odd=("", "127.0.0.1")),
    "CreateAcls.operation": fixed(2, 3, 4, 8, 10, 11, odd=(5, 6, 7, 9, 12, 13, 14)),
    "operation": fixed(1, 3, 4, odd=(2,)),
    "CreateAcls.permission_type": fixed(3, 2),
    "permission_type": fixed(1, 3, odd=(2,)),
    "DescribeUserScramCredentials.name": fixed("{p}u", "{p}v", odd=("", "{p}w")),
    "AlterUserScramCredentials.name": fixed("{p}u", "{p}v", odd=("",)),
    "mechanism": fixed(1, 2, odd=(0, 3, -1)),
    "iterations": fixed(4096, 8192, odd=(4095, 16384, 16385, 0)),
    "salt": fixed(b"salt"),
    "salted_password": fixed(b"x" * 32),
    "AlterClientQuotas.entity_type": fixed("user", "client-id", "ip", odd=("bogus", "")),
    "DescribeClientQuotas.entity_type": fixed("user", "client-id", "ip", odd=("bogus", "")),
    "AlterClientQuotas.entity_name": fixed("{p}u", "127.0.0.1", None, odd=("", "host")),
    "AlterClientQuotas.key": fixed(
        "producer_byte_rate", "consumer_byte_rate", "request_percentage", odd=("connection_creation_rate", "bogus")
    ),
    "AlterClientQuotas.value": fixed(1000.0, 1e6, 100.0, odd=(0.0, -1.0, 0.5, 1e300)),
    "match_type": fixed(0, 1, 2, odd=(3, -1)),
    "DescribeClientQuotas.match": fixed("{p}u", None, "127.0.0.1", odd=("",)),
    "election_type": fixed(0, 1, odd=(2, -1)),
    "path": fixed("/tmp", odd=("", "relative")),
    "endpoint_type": fixed(1, odd=(0, 2, 3)),
    "feature": fixed("group.version", "transaction.version", "share.version", odd=("bogus", "metadata.version", "")),
    "max_version_level": fixed(1, 2, odd=(0, -1, 50)),
    "upgrade_type": fixed(1, 2, odd=(0, 3, 4)),
    "UpdateFeatures.validate_only": fixed(True),
    "client_instance_id": lambda c: c.one(bytes(16), Ref("client_instance", c.label), odd=(b"\7" * 16,)),
    "subscription_id": lambda c: c.one(Ref("subscription", c.label), odd=(5,)),
    "compression_type": fixed(0, odd=(1, 9)),
    "metrics": fixed(b"", odd=(b"bogus", b"\xff" * 10)),
    "client_software_name": fixed("", "-", "a b"),
    "ApiVersions.cluster_id": lambda c: c.one(None, Ref("cluster_id", ""), odd=("bogus", "")),
    "ApiVersions.node_id": fixed(-1, 1, odd=(0, 7, -2)),
    "endpoint_information_epoch": lambda c: c.one(0, Ref("endpoint_epoch", c.group + c.label)),
    "process_id": lambda c: c.one(f"p-{c.label}", "p", odd=(None, "")),
    "host": fixed("h", odd=("",)),
    "port": fixed(80, odd=(0, 65535)),
    "topology_epoch": fixed(0, odd=(1, -1)),
    "subtopology_id": fixed("0", "1", odd=("9", "")),
    "client_software_version": fixed("1", odd=("", "-", "a b")),
    "max_lifetime_ms": fixed(-1, 1000),
    "key": fixed("k"),
    "SaslHandshake.mechanism": fixed("PLAIN"),
    "allow_auto_topic_creation": fixed(False),
    "Metadata.name": lambda c: c.one(c.topic, odd=(None,)),
}


def pool(api: str, name: str) -> Pool | None:
    return _POOLS.get(f"{api}.{name}", _POOLS.get(name))


def fitted(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a struct after fields that must agree were made equal."""
    if "records" in values and isinstance(values["records"], Batch):
        values["records"] = values["records"]._replace(partition=values.get("index", 0))
    return values


_KEYS: Final = ("topic_id", "name", "topic", "topic_name", "partition_index", "partition", "index") + (
    "group_id",
    "transactional_id",
    "resource_name",
    "member_id",
)
_NEVER_TWICE: Final = frozenset(
    {"Produce", "DeleteRecords", "AlterConfigs", "IncrementalAlterConfigs", "UpdateFeatures", "JoinGroup"}
)


def unlike(c: Chooser, elements: list[Any]) -> list[Any]:
    """Return elements of which most have different names."""
    if c.api not in _NEVER_TWICE and any(hasattr(each, "fields") for each in elements) and c.rng.random() < 0.1:
        return elements
    found: dict[str, Any] = {}
    for each in elements:
        key = [each.fields[key] for key in _KEYS if key in each.fields] if hasattr(each, "fields") else each
        found.setdefault(repr(key or each), each)
    return list(found.values())


def _even(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


FAMILIES: Final[dict[str, Family]] = {
    "data": Family(
        {"Produce": 5.0, "InitProducerId": 1.0, "Fetch": 5.0}
        | _even("ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords", "DescribeProducers", "Metadata")
    ),
    "transactions": Family(
        {"Produce": 4.0, "InitProducerId": 2.0, "EndTxn": 3.0, "AddPartitionsToTxn": 3.0, "Fetch": 2.0}
        | {"AddOffsetsToTxn": 2.0, "TxnOffsetCommit": 2.0}
        | _even("ListOffsets", "DescribeTransactions", "ListTransactions", "OffsetFetch", "DescribeProducers")
        | _even("OffsetDelete", "OffsetCommit", "DeleteGroups"),
        producers=("{p}t", "{p}u"),
    ),
    "classic": Family(
        {"JoinGroup": 5.0, "SyncGroup": 4.0, "Heartbeat": 2.0, "OffsetCommit": 3.0, "OffsetFetch": 2.0}
        | {"LeaveGroup": 0.7, "DeleteGroups": 0.4, "OffsetDelete": 0.7}
        | _even("DescribeGroups", "ListGroups", "FindCoordinator", "ConsumerGroupDescribe", "TxnOffsetCommit")
    ),
    "consumer": Family(
        {"ConsumerGroupHeartbeat": 6.0, "OffsetCommit": 2.0, "OffsetFetch": 2.0, "ConsumerGroupDescribe": 2.0}
        | {"DeleteGroups": 0.3, "OffsetDelete": 0.5, "JoinGroup": 0.5, "LeaveGroup": 0.5, "Heartbeat": 0.5}
        | _even("DescribeGroups", "ListGroups", "ShareGroupDescribe", "TxnOffsetCommit")
        | {"ShareGroupHeartbeat": 0.3}
    ),
    "share": Family(
        {"ShareGroupHeartbeat": 4.0, "ShareFetch": 6.0, "ShareAcknowledge": 3.0, "Produce": 2.0}
        | {"DeleteGroups": 0.2, "AlterShareGroupOffsets": 0.5, "DeleteShareGroupOffsets": 0.5}
        | {"DescribeShareGroupOffsets": 1.0, "ConsumerGroupHeartbeat": 0.3, "OffsetCommit": 0.3, "OffsetFetch": 0.3}
        | _even("ShareGroupDescribe", "ListGroups", "DescribeGroups"),
    ),
    "streams": Family(
        {"StreamsGroupHeartbeat": 12.0, "StreamsGroupDescribe": 3.0, "OffsetCommit": 2.0, "OffsetFetch": 1.5}
        | {"TxnOffsetCommit": 2.0, "InitProducerId": 0.7, "AddOffsetsToTxn": 0.7, "EndTxn": 0.5, "JoinGroup": 0.3}
        | {"DeleteGroups": 0.5, "OffsetDelete": 0.5, "StreamsGroupTopologyDescriptionUpdate": 0.5}
        | {"ConsumerGroupHeartbeat": 0.3, "ShareGroupHeartbeat": 0.3, "CreatePartitions": 0.3, "LeaveGroup": 0.3}
        | _even("ListGroups", "DescribeGroups", "ConsumerGroupDescribe"),
        groups=("{p}g", "{p}h"),
        producers=("{p}t",),
    ),
    "topics": Family(
        {"CreateTopics": 3.0, "DeleteTopics": 1.0, "CreatePartitions": 2.0, "Metadata": 4.0}
        | _even("DescribeTopicPartitions", "ElectLeaders", "DescribeLogDirs", "AlterReplicaLogDirs", "DescribeCluster")
        | _even("ListPartitionReassignments", "AlterPartitionReassignments", "DescribeQuorum", "FindCoordinator")
    ),
    "configs": Family(
        {"IncrementalAlterConfigs": 5.0, "AlterConfigs": 2.0, "DescribeConfigs": 4.0, "CreateTopics": 1.0}
        | {"ListConfigResources": 1.0}
    ),
    "security": Family(
        {"CreateAcls": 3.0, "DescribeAcls": 3.0, "DeleteAcls": 2.0, "DescribeUserScramCredentials": 2.0}
        | {"AlterUserScramCredentials": 3.0, "AlterClientQuotas": 3.0, "DescribeClientQuotas": 3.0}
        | {"UpdateFeatures": 1.0, "ApiVersions": 1.0, "DescribeDelegationToken": 0.5, "CreateDelegationToken": 0.5}
        | {"GetTelemetrySubscriptions": 1.0, "PushTelemetry": 1.0}
    ),
}
