"""Cases about topics, configs, quotas, users, ACLs, tokens and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from klamm.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from klamm.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.wire.messages.describe_acls import DescribeAclsRequest
from klamm.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from klamm.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from klamm.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from klamm.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from klamm.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from klamm.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from klamm.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.wire.messages.list_config_resources import ListConfigResourcesRequest
from klamm.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm.wire.messages.sasl_handshake import SaslHandshakeRequest
from klamm.wire.primitives import ZERO_UUID
from klamm_broker.configs.unused_configs import UNUSED_CONFIGS
from tests.interop.beside_kafka.comparison import Case, Ids

Make = Callable[[int, Ids], Any]
NAMES = ("data", "none", "a b", "", ".", "..", "x" * 249, "x" * 250, "a/b", "ü", "__consumer_offsets")


def always(request: Any) -> Make:
    return lambda _version, _ids: request


def metadata_cases() -> Iterator[Case]:
    quiet: dict[str, Any] = {"allow_auto_topic_creation": False}

    def named(*names: str | None, **fields: Any) -> Make:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        return always(MetadataRequest(wanted, **{**quiet, **fields}))

    for name in NAMES:
        yield Case(f"of {name[:20]!r}", named(name), range(4, 14))
        if name not in ("none", "x" * 249):
            yield Case(f"of {name[:20]!r}, to be created", named(name, allow_auto_topic_creation=True), range(4, 14))
    yield Case("none", always(MetadataRequest([], **quiet)), range(1, 14))
    yield Case("twice", named("data", "none", "data", "none"), range(4, 14))
    yield Case("null name", named(None), range(10, 12))
    yield Case("operations of topics", named("data", "none", "a b", include_topic_authorized_operations=True))
    yield Case("operations of the cluster", named("data", include_cluster_authorized_operations=True))

    def by_id(*names: str, name: str | None = None) -> Make:
        return lambda _version, ids: MetadataRequest(
            [MetadataRequestTopic(ids.of(each), name) for each in names], allow_auto_topic_creation=False
        )

    yield Case("by id", by_id("data"), range(10, 14))
    yield Case("by an id that is none", by_id("none"), range(10, 14))
    yield Case("by id twice", by_id("data", "data", "none"), range(12, 14))
    yield Case("by id and name", by_id("data", name="empty"), range(10, 14))
    yield Case(
        "by id, to be created",
        lambda _version, ids: MetadataRequest(
            [MetadataRequestTopic(ids.of("none"), None)], allow_auto_topic_creation=True
        ),
        range(12, 14),
    )
    yield Case(
        "ids and names",
        lambda _version, ids: MetadataRequest(
            [MetadataRequestTopic(ids.of("data"), None), MetadataRequestTopic(name="empty")],
            allow_auto_topic_creation=False,
        ),
        range(12, 14),
    )


def coordinator_cases() -> Iterator[Case]:
    for kind in (-1, 0, 1, 2, 3):
        for key in (
            "g",
            "",
            "g:AAECAwQFBgcICQoLDA0ODw:0",
            "g:x:0",
            "g:AAECAwQFBgcICQoLDA0ODw:-1",
            ":AAECAwQFBgcICQoLDA0ODw:0",
        ):
            if kind == 1 or (kind == 2 and key.startswith("g:AA")):
                continue
            yield Case(f"type {kind}, {key!r}", always(FindCoordinatorRequest(key, kind)), range(0, 4))
            yield Case(f"type {kind}, {key!r}", always(FindCoordinatorRequest("", kind, [key])), range(4, 7))
    yield Case("no keys", always(FindCoordinatorRequest("", 0, [])), range(4, 7))
    yield Case("twice", always(FindCoordinatorRequest("", 0, ["g", "g"])), range(4, 7))


def versions_cases() -> Iterator[Case]:
    for name, version in (("", ""), ("a", ""), ("", "1"), ("-a", "1"), ("a b", "1"), ("a", "1 2"), ("a", ".1")):
        if all(part and part[0].isalnum() and " " not in part for part in (name, version)):
            continue
        yield Case(f"client {name!r} {version!r}", always(ApiVersionsRequest(name, version)), range(3, 5))


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name, partitions, factor, **fields)


def creation_cases() -> Iterator[Case]:
    def of(*topics: Callable[[int], CreatableTopic], validate_only: bool = False) -> Make:
        return lambda version, _ids: CreateTopicsRequest([make(version) for make in topics], 5000, validate_only)

    def fixed(*topics: CreatableTopic, **fields: Any) -> Make:
        return of(*[lambda _version, one=one: one for one in topics], **fields)  # type: ignore[misc]

    yield Case("a topic", of(lambda version: topic(f"made-{version}", 2)))
    yield Case("a topic again", of(lambda version: topic(f"made-{version}", 2)))
    yield Case("defaults", of(lambda version: topic(f"defaults-{version}", -1, -1)))
    for name in NAMES:
        if name not in ("none", "x" * 249, "__consumer_offsets"):
            yield Case(f"named {name[:20]!r}", fixed(topic(name)))
    yield Case("a collision", fixed(topic("da.ta_1"), topic("other")), range(5, 6))
    yield Case("the other of a collision", fixed(topic("da_ta_1")))
    yield Case("the metadata log", fixed(topic("__cluster_metadata")))
    yield Case("twice", fixed(topic("twice"), topic("twice", 2), topic("once-with")), range(5, 6))
    for count in (0, -2, 2**31 - 1, 10_001):
        yield Case(f"{count} partitions", fixed(topic("counted", count)))
    for factor in (0, -2, 2, 32767):
        yield Case(f"factor {factor}", fixed(topic("counted", 1, factor)))
    for assignments in (
        [(0, [1])],
        [(1, [1])],
        [(0, [1]), (2, [1])],
        [(0, [1]), (0, [1])],
        [(0, [])],
        [(0, [2])],
        [(0, [1, 1])],
        [(0, [1, 2])],
        [(-1, [1])],
    ):
        made = [CreatableReplicaAssignment(*each) for each in assignments]
        yield Case(f"assigned {assignments}", fixed(topic("assigned", -1, -1, assignments=made), validate_only=True))
        yield Case(f"assigned {assignments} and counted", fixed(topic("assigned", 1, 1, assignments=made)))
        yield Case(f"assigned {assignments}, a factor", fixed(topic("assigned", -1, 1, assignments=made)))
    for key, value in (
        ("retention.ms", "5"), ("retention.ms", "-2"), ("retention.ms", "x"), ("retention.ms", ""),
        ("retention.ms", None), ("no.such", "1"), ("cleanup.policy", "compact,delete"), ("cleanup.policy", "keep"),
        ("cleanup.policy", ""),
        ("min.insync.replicas", "0"), ("compression.type", "br"), ("segment.bytes", "13"), ("retention.bytes", " 7 "),
        ("unclean.leader.election.enable", "yes"), ("unclean.leader.election.enable", "TRUE"),
        ("leader.replication.throttled.replicas", "*"), ("message.timestamp.type", "createtime"),
        ("follower.replication.throttled.replicas", "1:2"), ("remote.storage.enable", "true"), ("preallocate", "1"),
        ("max.compaction.lag.ms", "0"), ("min.cleanable.dirty.ratio", "2"), ("compression.gzip.level", "0"),
        ("compression.zstd.level", "99"), ("message.format.version", "3.0"), ("local.retention.ms", "-3"),
        ("local.retention.ms", "5"), ("segment.jitter.ms", "-1"), ("index.interval.bytes", "-1"),
    ):  # fmt: skip
        configs = [CreatableTopicConfig(key, value)]
        yield Case(f"{key}={value!r}", fixed(topic("configured", configs=configs), validate_only=True))
    twice = [CreatableTopicConfig("retention.ms", "5"), CreatableTopicConfig("retention.ms", "6")]
    yield Case("a config twice", fixed(topic("configured", configs=twice), validate_only=True))
    lag = [CreatableTopicConfig("min.compaction.lag.ms", "9"), CreatableTopicConfig("max.compaction.lag.ms", "8")]
    yield Case("lags that contradict", fixed(topic("lagging", configs=lag), validate_only=True))
    yield Case("nothing", fixed())
    yield Case("several wrong", fixed(topic("data", 0, 9, configs=[CreatableTopicConfig("no", "1")])))
    yield Case("several wrong, new", fixed(topic("newly", 0, 9, configs=[CreatableTopicConfig("no", "1")])))


def removal_cases() -> Iterator[Case]:
    def named(*names: str) -> Make:
        return lambda _version, _ids: DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000)

    for name in NAMES:
        if name not in ("data", "__consumer_offsets"):
            yield Case(f"named {name[:20]!r}", named(name), range(1, 6))
    yield Case("one", lambda version, _ids: DeleteTopicsRequest(topic_names=[f"made-{version}"], timeout_ms=5000))
    yield Case("twice", named("made-6", "made-6", "none"), range(1, 6))
    yield Case("nothing", named(), range(1, 6))

    def states(*wanted: tuple[str | None, str | None]) -> Make:
        return lambda _version, ids: DeleteTopicsRequest(
            [DeleteTopicState(name, ids.of(other) if other else ZERO_UUID) for name, other in wanted], timeout_ms=5000
        )

    six = range(6, 7)
    for wanted in (
        [(None, None)], [("made-6", "made-6")], [("none", None)], [(None, "none")], [("a b", None)], [("", None)],
        [("made-6", None), ("made-6", None)], [(None, "made-6"), (None, "made-6")],
        [("made-6", None), (None, "made-6")], [("none", None), (None, "none")], [(None, None), (None, None)],
        [("none", "data")], [("made-6", "none")],
        [], [(None, "made-6")], [("made-7", None)],
    ):  # fmt: skip
        yield Case(f"{wanted}", states(*wanted), six)


def growth_cases() -> Iterator[Case]:
    def of(*wanted: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> Make:
        topics = [
            CreatePartitionsTopic(
                name, count, None if lists is None else [CreatePartitionsAssignment(each) for each in lists]
            )
            for name, count, lists in wanted
        ]
        return always(CreatePartitionsRequest(topics, 5000, validate_only))

    for count in (0, -1, 1, 2, 3, 2**31 - 1):
        yield Case(
            f"to {count}", of(("growing", count, None), validate_only=True), differs=("10,000" if count > 9 else "")
        )
    for lists in ([], [[1]], [[2]], [[]], [[1, 1]], [[1], [1]], [[1, 2]]):
        yield Case(f"to 3 with {lists}", of(("growing", 3, lists), validate_only=True))
    for name in ("none", "a b", "", "__cluster_metadata"):
        yield Case(f"{name!r}", of((name, 3, None)))
    yield Case("twice", of(("growing", 3, None), ("growing", 4, None)))
    yield Case("nothing", of())
    yield Case("really", of(("growing", 3, None)))


def describe_config_cases() -> Iterator[Case]:
    def of(kind: int, name: str, keys: list[str] | None, **fields: Any) -> Make:
        return always(DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], **fields))

    for keys in (None, [], ["retention.ms"], ["no.such"], ["retention.ms", "retention.ms"]):
        yield Case(
            f"keys {keys}",
            of(2, "configured-topic", keys, include_synonyms=True),
        )
    for kind in (0, 1, 3, 5, 7, 9, 33, -1):
        for name in ("", "x", "1"):
            yield Case(f"type {kind}, {name!r}", of(kind, name, ["retention.ms"]))
    for name in ("none", "a b", "", "x" * 250):
        yield Case(f"topic {name[:9]!r}", of(2, name, None))
    for name in ("1", "2", "", "x", "-1", " 1"):
        yield Case(f"broker {name!r}", of(4, name, ["log.retention.ms", "num.partitions"], include_synonyms=True))
        yield Case(f"logger {name!r}", of(8, name, ["no.such"]))
    for keys in (None, [], ["metrics"], ["no.such"]):
        yield Case(f"client metrics that do not exist, {keys}", of(16, "none", keys, include_synonyms=True))
    yield Case("twice", always(DescribeConfigsRequest([DescribeConfigsResource(2, "data", ["retention.ms"])] * 2)))
    yield Case("nothing", always(DescribeConfigsRequest([])))
    sound, unknown = (DescribeConfigsResource(kind, "data", ["retention.ms"]) for kind in (2, 5))
    yield Case("an unknown type beside a topic", always(DescribeConfigsRequest([sound, unknown])))


def broker_config_cases() -> Iterator[Case]:
    """Yield cases of configs that have no effect in klamm."""

    def of(name: str, value: str | None, operation: int = 0) -> Make:
        changes = [AlterableConfig(name, operation, value)]
        return always(IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", changes)], validate_only=True))

    for name, config in UNUSED_CONFIGS.items():
        default = str(config.default or 1_000_000).lower()
        for value in ("", "x", "-1", "-2", "0", default, f" {default} ", "9223372036854775808", "1.5", None):
            yield Case(f"{name}={value!r}", of(name, value))
        yield Case(f"{name} deleted", of(name, None, 1))
        yield Case(f"{name} appended to", of(name, default, 2))


def quota_cases() -> Iterator[Case]:
    def alter(entity: list[tuple[str, str | None]], *ops: OpData, times: int = 1, **fields: Any) -> Make:
        entry = RequestEntryData([RequestEntityData(*each) for each in entity], list(ops))
        return always(AlterClientQuotasRequest([entry] * times, **fields))

    rate = OpData("producer_byte_rate", 1000.0)
    for entity in (
        [("user", "u")], [("user", None)], [("user", "")], [("client-id", "c")], [("user", "u"), ("client-id", "c")],
        [("ip", "10.0.0.1")], [("ip", "x.invalid")], [("ip", None)], [("ip", "10.0.0.1"), ("user", "u")], [("x", "y")],
        [], [("user", "u"), ("user", "v")], [("", "u")],
    ):  # fmt: skip
        yield Case(f"alter {entity}", alter(entity, rate))
        yield Case(f"alter {entity}, connections", alter(entity, OpData("connection_creation_rate", 1e6)))
    yield Case(
        "alter a host name", alter([("ip", "localhost")], OpData("connection_creation_rate", 1e6)), differs="host names"
    )
    for key, value in (
        ("producer_byte_rate", 0.0), ("producer_byte_rate", -1.0), ("producer_byte_rate", 1.5), ("no_such", 1.0),
        ("request_percentage", 0.5), ("controller_mutation_rate", 0.5), ("consumer_byte_rate", 2.0**62),
        ("producer_byte_rate", 2.0**64), ("", 1.0), ("request_percentage", 0.0),
    ):  # fmt: skip
        yield Case(f"{key}={value}", alter([("user", "w")], OpData(key, value)))
    yield Case("remove", alter([("user", "u")], OpData("producer_byte_rate", 0.0, True)))
    yield Case("remove what is not there", alter([("user", "nobody")], OpData("producer_byte_rate", 0.0, True)))
    yield Case("remove what cannot be", alter([("user", "nobody")], OpData("no_such", 0.0, True)))
    yield Case("a key twice", alter([("user", "t")], rate, OpData("producer_byte_rate", 7.0)))
    yield Case("an entity twice", alter([("user", "t")], rate, times=2))
    yield Case("no changes", alter([("user", "t")]))
    yield Case("only looked at", alter([("user", "v")], rate, validate_only=True))
    yield Case("nothing", always(AlterClientQuotasRequest([])))
    for components in (
        [], [("user", 0, "w")], [("user", 1, None)], [("user", 2, None)], [("user", 0, None)], [("user", 1, "w")],
        [("user", 2, "w")], [("user", 3, None)], [("user", -1, None)], [("ip", 2, None), ("user", 2, None)],
        [("x", 2, None)], [("", 2, None)], [("user", 2, None), ("user", 2, None)],
        [("client-id", 2, None), ("user", 2, None)],
        [("user", 0, "")], [("ip", 0, "10.0.0.1")],
    ):  # fmt: skip
        for strict in (False, True):
            made = [ComponentData(*each) for each in components]
            yield Case(f"describe {components}, {strict}", always(DescribeClientQuotasRequest(made, strict)))


def user_cases() -> Iterator[Case]:
    def upsert(name: str, mechanism: int = 1, iterations: int = 4096, salted: bytes = b"p" * 32) -> Any:
        return ScramCredentialUpsertion(name, mechanism, iterations, b"salt", salted)

    def alter(*upsertions: Any, remove: tuple[tuple[str, int], ...] = ()) -> Make:
        gone = [ScramCredentialDeletion(*each) for each in remove]
        return always(AlterUserScramCredentialsRequest(gone, list(upsertions)))

    for each in (
        ("u",), ("",), ("u", 2), ("u", 0), ("u", 3), ("u", -1), ("u", 1, 4095), ("u", 1, 16385), ("u", 1, 0),
        ("u", 1, 16384), ("u", 1, -5),
    ):  # fmt: skip
        yield Case(f"upsert {each}", alter(upsert(*each)))
    yield Case("no password", alter(upsert("u", salted=b"")), differs="an empty salted password")
    yield Case("a user twice", alter(upsert("v"), upsert("v", 2)))
    yield Case("a user twice, once wrong", alter(upsert("v"), upsert("v", 9)))
    yield Case("a user twice, first wrong", alter(upsert("v", 9), upsert("v")))
    yield Case("upsert and delete", alter(upsert("u"), remove=(("u", 1),)))
    for gone in (("none", 1), ("u", 2), ("u", 0), ("", 1), ("u", 9)):
        yield Case(f"delete {gone}", alter(remove=(gone,)))
    yield Case("nothing", alter())
    for names in (None, [], ["u"], ["none"], [""], ["u", "u"], ["u", "none"]):
        wanted = None if names is None else [UserName(name) for name in names]
        yield Case(f"describe {names}", always(DescribeUserScramCredentialsRequest(wanted)))


def acl_cases() -> Iterator[Case]:
    """Yield cases of ACLs. The servers have no authorizer."""
    yield Case("describe", always(DescribeAclsRequest(1, None, 1, None, None, 1, 1)))
    yield Case("describe what cannot be", always(DescribeAclsRequest(0, None, 0, None, None, 0, 0)))
    yield Case("create", always(CreateAclsRequest([AclCreation(2, "t", 3, "User:a", "*", 3, 3)])))
    yield Case("create nothing", always(CreateAclsRequest([])))
    yield Case("delete", always(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)])))
    yield Case("delete nothing", always(DeleteAclsRequest([])))


def token_cases() -> Iterator[Case]:
    """Yield cases of delegation tokens over plaintext."""
    yield Case("create", always(CreateDelegationTokenRequest(max_lifetime_ms=-1)))
    yield Case("create for another", always(CreateDelegationTokenRequest("User", "x", max_lifetime_ms=-1)))
    yield Case("renew", always(RenewDelegationTokenRequest(b"x", 1)))
    yield Case("expire", always(ExpireDelegationTokenRequest(b"x", 1)))
    yield Case("describe", always(DescribeDelegationTokenRequest(None)))
    yield Case("describe, no owners", always(DescribeDelegationTokenRequest([])))


def cluster_cases() -> Iterator[Case]:
    for kind in (-1, 0, 1, 2, 3):
        yield Case(f"DescribeCluster, endpoint {kind}", always(DescribeClusterRequest(True, kind)), range(1, 3))
    yield Case("DescribeCluster", always(DescribeClusterRequest()), range(0, 1))
    yield Case("DescribeCluster, fenced", always(DescribeClusterRequest(include_fenced_brokers=True)), range(2, 3))
    for asked in (
        [],
        [("t", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [0]), ("x", [0])],
    ):
        topics = [RequestTopicData(name, [RequestPartitionData(one) for one in each]) for name, each in asked]
        yield Case(f"DescribeQuorum {asked}", always(DescribeQuorumRequest(topics)))
    for kind in (0, 1, 2, -1):
        for wanted in (None, [], [("data", [0])], [("data", [9])], [("none", [0])], [("data", [])], [("data", [0, 0])]):
            named = None if wanted is None else [TopicPartitions(*each) for each in wanted]
            yield Case(
                f"ElectLeaders {kind} {wanted}",
                always(ElectLeadersRequest(kind, named, 5000)),
                differs=("ElectLeaders for all" if wanted is None and kind in (0, 1) else ""),
            )
    for name, index, replicas in (
        ("data", 0, [1]), ("data", 0, None), ("data", 0, []), ("data", 0, [2]), ("data", 0, [1, 1]), ("data", 9, [1]),
        ("none", 0, [1]), ("data", 0, [1, 2]), ("data", -1, None), ("data", 0, [-1]), ("none", 0, None),
    ):  # fmt: skip
        for flag in (True, False):
            made = [ReassignableTopic(name, [ReassignablePartition(index, replicas)])]
            request = AlterPartitionReassignmentsRequest(5000, flag, made)
            yield Case(f"Reassign {name}-{index} to {replicas} {flag}", always(request))
    twice = [ReassignableTopic("data", [ReassignablePartition(0, [1]), ReassignablePartition(0, None)])]
    yield Case("Reassign twice", always(AlterPartitionReassignmentsRequest(5000, True, twice)))
    for flag in (True, False):
        yield Case(f"Reassign nothing {flag}", always(AlterPartitionReassignmentsRequest(5000, flag, [])))
    for each in (None, [], [("data", [0])], [("none", [0])]):
        asked_of = None if each is None else [ListPartitionReassignmentsTopics(*one) for one in each]
        yield Case(f"ListReassignments {each}", always(ListPartitionReassignmentsRequest(5000, asked_of)))
    for path in ("/nowhere", "", "relative"):
        for name, index in (("data", 0), ("none", 0), ("x" * 249, 0)):
            moved = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(name, [index])])]
            yield Case(f"Move {name[:9]}-{index} to {path!r}", always(AlterReplicaLogDirsRequest(moved)))
    yield Case("Move nothing", always(AlterReplicaLogDirsRequest([])))
    for names in ([], [("data", [0, 1])], [("none", [0])], [("empty", [0, 0])], [("data", [])]):
        found = [DescribableLogDirTopic(*one) for one in names]
        yield Case(f"DescribeLogDirs {names}", always(DescribeLogDirsRequest(found)))
    for kinds in ([16], [32], [99], [-1], [0], [4, 8]):
        yield Case(f"ListConfigResources {kinds}", always(ListConfigResourcesRequest(kinds)), range(1, 2))
    yield Case("ListConfigResources", always(ListConfigResourcesRequest()), range(0, 1))
    yield Case("SaslHandshake", always(SaslHandshakeRequest("PLAIN")))
    yield Case("SaslHandshake with nothing", always(SaslHandshakeRequest("")))


def partition_cases() -> Iterator[Case]:
    def of(*names: str, limit: int = 2000, cursor: RequestCursor | None = None) -> Make:
        return always(DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor))

    for name in NAMES:
        if name:
            yield Case(f"of {name[:20]!r}", of(name))
    yield Case("twice", of("data", "data"))
    for limit in (0, 1, -1, 2**31 - 1):
        yield Case(f"limit {limit}", of("data", "empty", limit=limit))
    for name, index in (("data", 0), ("data", 1), ("data", 5), ("data", -1), ("none", 0), ("zzz", 0), ("", 0)):
        yield Case(f"cursor {name}-{index}", of("data", "empty", cursor=RequestCursor(name, index)))
    yield Case("unknown and a limit", of("none", "data", "empty", limit=1))


def all_cases() -> Iterator[Case]:
    groups = {
        "Metadata": metadata_cases,
        "FindCoordinator": coordinator_cases,
        "ApiVersions": versions_cases,
        "CreateTopics": creation_cases,
        "DeleteTopics": removal_cases,
        "CreatePartitions": growth_cases,
        "DescribeConfigs": describe_config_cases,
        "IncrementalAlterConfigs": broker_config_cases,
        "quotas": quota_cases,
        "users": user_cases,
        "ACLs": acl_cases,
        "tokens": token_cases,
        "cluster": cluster_cases,
        "DescribeTopicPartitions": partition_cases,
    }
    for api, cases in groups.items():
        for case in cases():
            yield case._replace(name=f"{api}: {case.name}")
