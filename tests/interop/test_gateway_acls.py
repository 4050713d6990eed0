"""A gateway with `acl.rules = "cluster"` denies the same as Kafka's StandardAuthorizer, for random rules.

The same client sends requests to both. The gateway logs in to the node as a super user, so only the gateway's own
decision counts. Slow: `pytest -m slow -s tests/interop/test_gateway_acls.py`.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.testing import RawClient
from klamm.wire.messages import (
    create_partitions,
    create_topics,
    delete_records,
    describe_configs,
    fetch,
    find_coordinator,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
)
from klamm.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.describe_acls import DescribeAclsRequest
from klamm.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from klamm.wire.messages.describe_producers import DescribeProducersRequest
from klamm.wire.messages.describe_producers import TopicRequest as ProducersTopic
from klamm.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup as OffsetsOfGroup
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestTopic as OffsetsOfTopic
from klamm.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.incremental_alter_configs import AlterableConfig as Change
from klamm.wire.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from klamm.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.list_config_resources import ListConfigResourcesRequest
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from klamm.wire.messages.list_transactions import ListTransactionsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm.wire.messages.sync_group import SyncGroupRequest
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.wire.records import Record, encode_batch
from klamm.wire.struct_base import WireStruct
from tests.interop.test_acls import ADMIN, ALICE, kafka_settings, klamm_settings, password
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server, lasting_port
from tests.sasl_client import log_in

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 25
IN_FORCE_S = 15.0
TOPICS, GROUPS, TRANSACTIONS = ("t", "ta", "x"), ("g", "ga"), ("n", "na")
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED, DENY, ALLOW = 3, 4, 2, 3
NAMES = {TOPIC: TOPICS, GROUP: GROUPS, TRANSACTIONAL_ID: TRANSACTIONS, CLUSTER: ("kafka-cluster",)}
OPERATIONS = {
    TOPIC: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (2, 3, 6, 8, 10, 11),
    CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (2, 4, 8, 15),
}
NAMING = ("name", "topic", "topic_name", "group_id", "resource_name")
BATCH = bytes(encode_batch([Record(0, 1000, None, b"value", ())]))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    server.settings |= kafka_settings(server)
    with server:
        with client_of(server, ADMIN) as admin:
            wanted = [create_topics.CreatableTopic(name, 1, 1) for name in TOPICS]
            admin.call(create_topics.CreateTopicsRequest(wanted, 10_000), 7)
        yield server


@pytest.fixture(scope="module")
def gateway(node: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammServer]:
    directory = tmp_path_factory.mktemp("gateway")
    secret = directory / "password"
    secret.write_text(password(ADMIN))
    secret.chmod(0o600)
    settings = klamm_settings() | {
        "listeners.default.api_set": "gateway",
        "listeners.default.acl.rules": "cluster",
        "gateway.bootstrap": f'["{node.bootstrap}"]',
        "gateway.node_ports": str(lasting_port()),
        "gateway.first_node_id": "1",
        "gateway.acls_max_age_ms": "500",
        "gateway.upstream.security_protocol": "SASL_PLAINTEXT",
        "gateway.upstream.sasl_mechanism": "PLAIN",
        "gateway.upstream.sasl_username": ADMIN,
        "gateway.upstream.sasl_password_file": str(secret),
    }
    with KlammServer(directory / "server", settings) as running:
        yield running


@contextlib.contextmanager
def client_of(server: Server, user: str) -> Iterator[RawClient]:
    with RawClient((HOST, server.port), timeout_s=30) as client:
        assert log_in(client, "PLAIN", user, password(user)).error_code == 0
        yield client


def requests() -> Iterator[tuple[str, Any, int]]:
    """Yield names, requests that change nothing of interest, and their versions."""
    for topic in TOPICS:
        yield from ((f"{name} of {topic}", request, version) for name, request, version in of_topic(topic))
    for group in GROUPS:
        yield from ((f"{name} of {group}", request, version) for name, request, version in of_group(group))
    for transaction in TRANSACTIONS:
        yield from ((f"{name} of {transaction}", request, version) for name, request, version in of_txn(transaction))
    yield from of_cluster()
    yield from of_several_topics()


def of_group(group: str) -> Iterator[tuple[str, Any, int]]:
    yield "FindCoordinator", find_coordinator.FindCoordinatorRequest(group, 0), 2
    yield "DescribeGroups", DescribeGroupsRequest([group]), 4
    yield "ConsumerGroupDescribe", ConsumerGroupDescribeRequest([group]), 0
    yield "ShareGroupDescribe", ShareGroupDescribeRequest([group, "x"]), 1
    wanted_offsets = [OffsetsOfTopic(topic, [0]) for topic in TOPICS]
    for named, topics in (("some", wanted_offsets), ("all", None)):
        request = DescribeShareGroupOffsetsRequest([OffsetsOfGroup(group, topics)])
        yield f"DescribeShareGroupOffsets of {named} topics", request, 0
    yield "Heartbeat", HeartbeatRequest(group, 1, "m"), 3
    yield "SyncGroup", SyncGroupRequest(group, 1, "m"), 3
    yield "LeaveGroup", LeaveGroupRequest(group, members=[MemberIdentity("m")]), 3
    yield "DeleteGroups", DeleteGroupsRequest([f"{group}-none"]), 1
    for topic in TOPICS:
        of_one = offset_commit.OffsetCommitRequestTopic(
            topic, partitions=[offset_commit.OffsetCommitRequestPartition(0, 0)]
        )
        yield f"OffsetCommit of {topic}", offset_commit.OffsetCommitRequest(group, topics=[of_one]), 6
        wanted = [offset_fetch.OffsetFetchRequestTopic(topic, [0])]
        yield f"OffsetFetch of {topic}", offset_fetch.OffsetFetchRequest(group, wanted), 5
    yield "OffsetFetch", offset_fetch.OffsetFetchRequest(group, None), 5
    deleted = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)]) for topic in TOPICS]
    yield "OffsetDelete", OffsetDeleteRequest(group, deleted), 0


def of_txn(transaction: str) -> Iterator[tuple[str, Any, int]]:
    yield "FindCoordinator", find_coordinator.FindCoordinatorRequest(transaction, 1), 2
    yield "DescribeTransactions", DescribeTransactionsRequest([transaction]), 0
    yield "EndTxn", EndTxnRequest(transaction, 1, 1, True), 3
    topics = [AddPartitionsToTxnTopic(name, [0]) for name in TOPICS]
    yield "AddPartitionsToTxn", AddPartitionsToTxnRequest([], transaction, 1, 1, topics), 3
    for group in GROUPS:
        yield f"AddOffsetsToTxn of {group}", AddOffsetsToTxnRequest(transaction, 1, 1, group), 3
        offsets = [
            TxnOffsetCommitRequestTopic(name, partitions=[TxnOffsetCommitRequestPartition(0, 1)]) for name in TOPICS
        ]
        yield f"TxnOffsetCommit of {group}", TxnOffsetCommitRequest(transaction, group, 1, 1, topics=offsets), 2


def of_cluster() -> Iterator[tuple[str, Any, int]]:
    yield "InitProducerId", InitProducerIdRequest(None, 1000), 3
    yield "Metadata of all", MetadataRequest(None, allow_auto_topic_creation=False), 9
    yield "ListGroups", ListGroupsRequest(), 3
    yield "ListTransactions", ListTransactionsRequest(), 0
    yield "ListConfigResources", ListConfigResourcesRequest(), 0
    yield "ListPartitionReassignments", ListPartitionReassignmentsRequest(), 0
    yield "DescribeAcls", DescribeAclsRequest(1, None, 1, None, None, 1, 1), 2
    yield "DescribeClientQuotas", DescribeClientQuotasRequest(), 1
    quota = RequestEntryData([RequestEntityData("client-id", "c")], [OpData("request_percentage", 50.0)])
    yield "AlterClientQuotas", AlterClientQuotasRequest([quota], True), 1
    yield "DescribeUserScramCredentials", DescribeUserScramCredentialsRequest([UserName(ALICE)]), 0
    yield "DescribeLogDirs", DescribeLogDirsRequest([]), 4
    quorum = RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])
    yield "DescribeQuorum", DescribeQuorumRequest([quorum]), 1
    resource = describe_configs.DescribeConfigsResource(4, "1", ["num.io.threads"])
    yield "DescribeConfigs of a broker", describe_configs.DescribeConfigsRequest([resource]), 3
    created = [create_topics.CreatableTopic(name, 1, 1) for name in ("tn", "xn")]
    yield "CreateTopics", create_topics.CreateTopicsRequest(created, 1000, True), 5


def of_several_topics() -> Iterator[tuple[str, Any, int]]:
    """Yield requests with several topics, of which some may be denied."""
    configs = [describe_configs.DescribeConfigsResource(2, topic, ["retention.ms"]) for topic in TOPICS]
    configs.append(describe_configs.DescribeConfigsResource(4, "1", ["num.io.threads"]))
    yield "DescribeConfigs of all", describe_configs.DescribeConfigsRequest(configs), 3
    altered = [AlterConfigsResource(2, topic, [AlterableConfig("retention.ms", "1000")]) for topic in TOPICS]
    yield "AlterConfigs of all", AlterConfigsRequest(altered, True), 1
    changed = [ChangedResource(2, topic, [Change("retention.ms", 0, "1000")]) for topic in TOPICS]
    yield "IncrementalAlterConfigs of all", IncrementalAlterConfigsRequest(changed, True), 1
    producers = [ProducersTopic(topic, [0]) for topic in TOPICS]
    yield "DescribeProducers of all", DescribeProducersRequest(producers), 0
    yield (
        "DescribeTopicPartitions of all",
        DescribeTopicPartitionsRequest([TopicRequest(topic) for topic in TOPICS]),
        0,
    )


def of_topic(topic: str) -> Iterator[tuple[str, Any, int]]:
    yield "Metadata", MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False), 9
    data = [produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, BATCH)])]
    yield "Produce", produce.ProduceRequest(None, 1, 5000, data), 8
    yield "Fetch", fetch.FetchRequest(max_bytes=1, topics=[fetch.FetchTopic(topic, [fetch.FetchPartition(0)])]), 11
    wanted = [list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(0, timestamp=-1)])]
    yield "ListOffsets", list_offsets.ListOffsetsRequest(-1, 0, wanted), 5
    epochs = [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, 0)])]
    yield "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest(-1, epochs), 3
    resource = describe_configs.DescribeConfigsResource(2, topic, ["retention.ms"])
    yield "DescribeConfigs", describe_configs.DescribeConfigsRequest([resource]), 3
    change = AlterConfigsResource(2, topic, [AlterableConfig("retention.ms", "1000")])
    yield "AlterConfigs", AlterConfigsRequest([change], True), 1
    deleted = [delete_records.DeleteRecordsTopic(topic, [delete_records.DeleteRecordsPartition(0, 0)])]
    yield "DeleteRecords", delete_records.DeleteRecordsRequest(deleted, 5000), 1
    more = create_partitions.CreatePartitionsTopic(topic, 2, None)
    yield "CreatePartitions", create_partitions.CreatePartitionsRequest([more], 5000, True), 1


def outcome(client: RawClient, request: Any, version: int) -> Any:
    try:
        return sorted(codes(client.call(request, version)), key=repr)
    except ConnectionError:
        return "closed"
    except TimeoutError as error:
        raise AssertionError(f"no answer to {request!r}, version {version}") from error


def codes(value: Any, name: str = "") -> Iterator[Any]:
    """Return the names and error codes of an answer."""
    if isinstance(value, WireStruct):
        shown = [getattr(value, each) for each in NAMING if hasattr(value, each)]
        for field in value.__slots__:
            held = getattr(value, field)
            if field == "error_code":
                yield shown, held
            elif isinstance(held, list) and field not in ("brokers", "records"):
                for each in held:
                    yield from codes(each, field)


def random_rules(choose: random.Random) -> list[AclCreation]:
    def one() -> AclCreation:
        kind = choose.choice([TOPIC, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID])
        pattern = LITERAL if kind == CLUSTER else choose.choice([LITERAL, LITERAL, PREFIXED])
        names = NAMES[kind] if pattern == PREFIXED or kind == CLUSTER else (*NAMES[kind], "*")
        return AclCreation(
            kind,
            choose.choice(names),
            pattern,
            choose.choice([f"User:{ALICE}", f"User:{ALICE}", "User:*", "User:bob"]),
            choose.choice(["*", "*", HOST, "10.0.0.1"]),
            choose.choice(OPERATIONS[kind]),
            choose.choice([ALLOW, ALLOW, ALLOW, DENY]),
        )

    return [one() for _ in range(choose.randrange(1, 12))]


def test_the_gateway_decides_as_kafka(node: KafkaServer, gateway: KlammServer, seed: int) -> None:
    choose = random.Random(seed)
    compared = allowed = 0
    with client_of(node, ADMIN) as admin:
        for number in range(ROUNDS):
            everything = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
            admin.call(DeleteAclsRequest([everything]), 2)
            rules = random_rules(choose)
            admin.call(CreateAclsRequest(rules), 2)
            deadline = time.monotonic() + IN_FORCE_S
            while found := differences(node, gateway):
                assert time.monotonic() < deadline, f"round {number}, {rules}:\n" + "\n".join(found)
                # New rules take effect a moment later, in Kafka and in the gateway.
                time.sleep(0.3)
            with client_of(gateway, ALICE) as client:
                for _name, request, version in requests():
                    compared += 1
                    allowed += all(not code for _shown, code in outcome(client, request, version))
    print(f"{compared} requests in {ROUNDS} rounds, {allowed} of them allowed")
    assert 0.05 * compared < allowed < 0.95 * compared


def differences(node: Server, gateway: Server) -> list[str]:
    with client_of(node, ALICE) as direct, client_of(gateway, ALICE) as through:
        found = []
        for name, request, version in requests():
            theirs, ours = (outcome(client, request, version) for client in (direct, through))
            if ours != theirs:
                found.append(f"{name}:\n  gateway: {ours}\n  Kafka: {theirs}")
        return found
