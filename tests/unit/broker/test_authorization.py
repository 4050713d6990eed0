"""Every API asks the authorizer. The table says which denials occur without rules, and which rules are sufficient."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode, RequestContext
from klamm.acl import AclOperation, Authorizer, ResourceType
from klamm.wire.messages.alter_client_quotas import AlterClientQuotasRequest, RequestEntityData, RequestEntryData
from klamm.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from klamm.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from klamm.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.create_acls import CreateAclsRequest
from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_acls import DeleteAclsRequest
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.wire.messages.describe_acls import DescribeAclsRequest
from klamm.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from klamm.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.describe_quorum import DescribeQuorumRequest
from klamm.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from klamm.wire.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from klamm.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from klamm.wire.messages.elect_leaders import ElectLeadersRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from klamm.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.join_group import JoinGroupRequest
from klamm.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.list_config_resources import ListConfigResourcesRequest
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from klamm.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.sync_group import SyncGroupRequest
from klamm.wire.messages.update_features import UpdateFeaturesRequest
from klamm_authorizers.authorizer_settings import StaticSettings
from klamm_authorizers.static import StaticAuthorizer
from tests.unit.broker import share_requests as share
from tests.unit.broker import transactional_requests as transactional
from tests.unit.broker.broker_harness import BrokerHarness, records
from tests.unit.broker.streams_requests import OF_OTHER_GROUPS

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "authorization.md"
TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = {TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID}
TOPIC_TYPE, BROKER_TYPE, BROKER_LOGGER_TYPE, CLIENT_METRICS_TYPE, GROUP_TYPE = 2, 4, 8, 16, 32
ATTRIBUTES_LOW_BYTE, TRANSACTIONAL = 22, 0x10
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the denials that it gets without rules, and rules with which it gets none."""

    request: Any
    version: int
    denials: set[ErrorCode]
    rules: tuple[str, ...] = field(default=())


def fetch() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(0)])], session_epoch=-1)


def produce(transactional_id: str | None = None, *, in_transaction: bool = False) -> ProduceRequest:
    batch = bytearray(records(b"x"))
    batch[ATTRIBUTES_LOW_BYTE] |= TRANSACTIONAL if in_transaction else 0
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, bytes(batch))])]
    return ProduceRequest(transactional_id, -1, 1000, data)


def commit() -> OffsetCommitRequest:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    return OffsetCommitRequest("g", topics=topics)


def fetch_offsets() -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])


READ_GROUP = ("allow User:* READ group:g",)
ASKED = {
    # These cases come before the one that ends the open transaction.
    "DescribeTransactions": Asked(
        transactional.DESCRIBE,
        0,
        {TRANSACTIONAL_ID},
        ("allow User:* DESCRIBE transactional_id:x", "allow User:* DESCRIBE topic:t"),
    ),
    "Produce": Asked(produce(), 9, {TOPIC}, ("allow User:* WRITE topic:t",)),
    "Produce with a transaction": Asked(
        produce("x", in_transaction=True),
        9,
        {TRANSACTIONAL_ID},
        ("allow User:* WRITE transactional_id:x", "allow User:* WRITE topic:t"),
    ),
    "Produce outside of the transaction": Asked(produce("x"), 9, {TOPIC}, ("allow User:* WRITE topic:t",)),
    "Fetch": Asked(fetch(), 12, {TOPIC}, ("allow User:* READ topic:t",)),
    "ListOffsets": Asked(
        ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]),
        7,
        {TOPIC},
        ("allow User:* DESCRIBE topic:t",),
    ),
    "Metadata": Asked(
        MetadataRequest([MetadataRequestTopic(name="t")]), 12, {TOPIC}, ("allow User:* DESCRIBE topic:t",)
    ),
    "Metadata that creates": Asked(
        MetadataRequest([MetadataRequestTopic(name="made")], allow_auto_topic_creation=True),
        12,
        {TOPIC},
        ("allow User:* DESCRIBE,CREATE topic:made",),
    ),
    "OffsetCommit": Asked(commit(), 8, {GROUP}, ("allow User:* READ group:g", "allow User:* READ topic:t")),
    "OffsetFetch": Asked(
        fetch_offsets(), 8, {GROUP}, ("allow User:* DESCRIBE group:g", "allow User:* DESCRIBE topic:t")
    ),
    "OffsetFetch of one group": Asked(
        OffsetFetchRequest("g", topics=None), 7, {GROUP}, ("allow User:* DESCRIBE group:g",)
    ),
    "FindCoordinator": Asked(
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, {GROUP}, ("allow User:* DESCRIBE group:g",)
    ),
    "FindCoordinator of a transaction": Asked(
        FindCoordinatorRequest("x", 1), 3, {TRANSACTIONAL_ID}, ("allow User:* DESCRIBE transactional_id:x",)
    ),
    "FindCoordinator of a share": Asked(
        FindCoordinatorRequest(key_type=2, coordinator_keys=[SHARE_KEY]),
        6,
        {CLUSTER},
        ("allow User:* CLUSTER_ACTION cluster",),
    ),
    "JoinGroup": Asked(JoinGroupRequest("g", 6000, 6000), 4, {GROUP}, READ_GROUP),
    "SyncGroup": Asked(SyncGroupRequest("g", 1, "m"), 3, {GROUP}, READ_GROUP),
    "Heartbeat": Asked(HeartbeatRequest("g", 1, "m"), 3, {GROUP}, READ_GROUP),
    "LeaveGroup": Asked(LeaveGroupRequest("g", members=[MemberIdentity("m")]), 4, {GROUP}, READ_GROUP),
    "DescribeGroups": Asked(DescribeGroupsRequest(["g"]), 5, {GROUP}, ("allow User:* DESCRIBE group:g",)),
    "CreateTopics": Asked(
        CreateTopicsRequest([CreatableTopic("new", 1, 1)]),
        7,
        {TOPIC},
        ("allow User:* CREATE cluster", "allow User:* DESCRIBE_CONFIGS topic:new"),
    ),
    "CreateTopics by name": Asked(
        CreateTopicsRequest([CreatableTopic("new", 1, 1)]),
        7,
        {TOPIC},
        ("allow User:* CREATE,DESCRIBE_CONFIGS topic:new",),
    ),
    "ConsumerGroupHeartbeat": Asked(
        ConsumerGroupHeartbeatRequest("c", "m", 0, None, None, 1000, ["t"], topic_partitions=[]),
        1,
        {GROUP},
        ("allow User:* READ group:c", "allow User:* DESCRIBE topic:t"),
    ),
    "ConsumerGroupDescribe": Asked(ConsumerGroupDescribeRequest(["c"]), 1, {GROUP}, ("allow User:* DESCRIBE group:c",)),
    **{api: Asked(request, version, {GROUP}, rules) for api, (request, version, rules) in OF_OTHER_GROUPS.items()},
    "DeleteTopics": Asked(DeleteTopicsRequest([], ["t"], 99), 5, {TOPIC}, ("allow User:* DELETE topic:t",)),
    "DeleteTopics by the cluster": Asked(
        DeleteTopicsRequest([], ["t"], 99), 5, {TOPIC}, ("allow User:* DELETE cluster",)
    ),
    "DeleteRecords": Asked(
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])]),
        2,
        {TOPIC},
        ("allow User:* DELETE topic:t",),
    ),
    "InitProducerId": Asked(InitProducerIdRequest(None, 1000), 4, {CLUSTER}, ("allow User:* WRITE topic:some*",)),
    "InitProducerId by the cluster": Asked(
        InitProducerIdRequest(None, 1000), 4, {CLUSTER}, ("allow User:* IDEMPOTENT_WRITE cluster",)
    ),
    "OffsetForLeaderEpoch": Asked(
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])]),
        4,
        {TOPIC},
        ("allow User:* DESCRIBE topic:t",),
    ),
    "OffsetForLeaderEpoch by the cluster": Asked(
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])]),
        4,
        {TOPIC},
        ("allow User:* CLUSTER_ACTION cluster",),
    ),
    "DescribeConfigs of a topic": Asked(
        DescribeConfigsRequest([DescribeConfigsResource(TOPIC_TYPE, "t")]),
        4,
        {TOPIC},
        ("allow User:* DESCRIBE_CONFIGS topic:t",),
    ),
    "DescribeConfigs of the broker": Asked(
        DescribeConfigsRequest([DescribeConfigsResource(BROKER_TYPE, "1")]),
        4,
        {CLUSTER},
        ("allow User:* DESCRIBE_CONFIGS cluster",),
    ),
    "DescribeConfigs of a group": Asked(
        DescribeConfigsRequest([DescribeConfigsResource(GROUP_TYPE, "g")]),
        4,
        {GROUP},
        ("allow User:* DESCRIBE_CONFIGS group:g",),
    ),
    "DescribeConfigs of loggers": Asked(
        DescribeConfigsRequest([DescribeConfigsResource(BROKER_LOGGER_TYPE, "1")]),
        4,
        {CLUSTER},
        ("allow User:* DESCRIBE_CONFIGS cluster",),
    ),
    "AlterConfigs": Asked(
        AlterConfigsRequest([AlterConfigsResource(TOPIC_TYPE, "t")]),
        2,
        {TOPIC},
        ("allow User:* ALTER_CONFIGS topic:t",),
    ),
    "AlterConfigs of the broker": Asked(
        AlterConfigsRequest([AlterConfigsResource(BROKER_TYPE, "1")]),
        2,
        {CLUSTER},
        ("allow User:* ALTER_CONFIGS cluster",),
    ),
    "AlterConfigs of a group": Asked(
        AlterConfigsRequest([AlterConfigsResource(GROUP_TYPE, "g")]),
        2,
        {GROUP},
        ("allow User:* ALTER_CONFIGS group:g",),
    ),
    "IncrementalAlterConfigs of a group": Asked(
        IncrementalAlterConfigsRequest([IncrementalResource(GROUP_TYPE, "g")]),
        1,
        {GROUP},
        ("allow User:* ALTER_CONFIGS group:g",),
    ),
    "IncrementalAlterConfigs of a logger": Asked(
        IncrementalAlterConfigsRequest([IncrementalResource(BROKER_LOGGER_TYPE, "1")]),
        1,
        {CLUSTER},
        ("allow User:* ALTER_CONFIGS cluster",),
    ),
    "IncrementalAlterConfigs of client metrics": Asked(
        IncrementalAlterConfigsRequest([IncrementalResource(CLIENT_METRICS_TYPE, "m")]),
        1,
        {CLUSTER},
        ("allow User:* ALTER_CONFIGS cluster",),
    ),
    "IncrementalAlterConfigs of a topic": Asked(
        IncrementalAlterConfigsRequest([IncrementalResource(TOPIC_TYPE, "t")]),
        1,
        {TOPIC},
        ("allow User:* ALTER_CONFIGS topic:t",),
    ),
    "IncrementalAlterConfigs": Asked(
        IncrementalAlterConfigsRequest([IncrementalResource(BROKER_TYPE, "1")]),
        1,
        {CLUSTER},
        ("allow User:* ALTER_CONFIGS cluster",),
    ),
    "DescribeLogDirs": Asked(DescribeLogDirsRequest(None), 4, {CLUSTER}, ("allow User:* DESCRIBE cluster",)),
    "CreatePartitions": Asked(
        CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)], 99), 3, {TOPIC}, ("allow User:* ALTER topic:t",)
    ),
    "DeleteGroups": Asked(DeleteGroupsRequest(["g"]), 2, {GROUP}, ("allow User:* DELETE group:g",)),
    "ElectLeaders": Asked(ElectLeadersRequest(0, None), 2, {CLUSTER}, ("allow User:* ALTER cluster",)),
    "AlterPartitionReassignments": Asked(
        AlterPartitionReassignmentsRequest(topics=[]), 1, {CLUSTER}, ("allow User:* ALTER cluster",)
    ),
    "AlterReplicaLogDirs": Asked(
        AlterReplicaLogDirsRequest([AlterReplicaLogDir("/x", [AlterReplicaLogDirTopic("t", [0])])]),
        2,
        {CLUSTER},
        ("allow User:* ALTER cluster",),
    ),
    "DescribeQuorum": Asked(DescribeQuorumRequest([]), 2, {CLUSTER}, ("allow User:* DESCRIBE cluster",)),
    "ListConfigResources": Asked(
        ListConfigResourcesRequest(), 1, {CLUSTER}, ("allow User:* DESCRIBE_CONFIGS cluster",)
    ),
    "ListPartitionReassignments": Asked(
        ListPartitionReassignmentsRequest(topics=None), 0, {CLUSTER}, ("allow User:* DESCRIBE cluster",)
    ),
    "InitProducerId of a transaction": Asked(
        InitProducerIdRequest("x", 1000), 4, {TRANSACTIONAL_ID}, ("allow User:* WRITE transactional_id:x",)
    ),
    "OffsetDelete": Asked(
        OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]),
        0,
        {GROUP},
        ("allow User:* DELETE group:g", "allow User:* READ topic:t"),
    ),
    "DescribeClientQuotas": Asked(
        DescribeClientQuotasRequest(), 1, {CLUSTER}, ("allow User:* DESCRIBE_CONFIGS cluster",)
    ),
    "AlterClientQuotas": Asked(
        AlterClientQuotasRequest([RequestEntryData([RequestEntityData("user", "a")])]),
        1,
        {CLUSTER},
        ("allow User:* ALTER_CONFIGS cluster",),
    ),
    "DescribeProducers": Asked(
        DescribeProducersRequest([TopicRequest("t", [0])]), 0, {TOPIC}, ("allow User:* READ topic:t",)
    ),
    "DescribeTopicPartitions": Asked(
        DescribeTopicPartitionsRequest([DescribedTopic("t")]), 0, {TOPIC}, ("allow User:* DESCRIBE topic:t",)
    ),
    "DescribeUserScramCredentials": Asked(
        DescribeUserScramCredentialsRequest(None), 0, {CLUSTER}, ("allow User:* DESCRIBE cluster",)
    ),
    "AlterUserScramCredentials": Asked(
        AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 1)]),
        0,
        {CLUSTER},
        ("allow User:* ALTER cluster",),
    ),
    "AddPartitionsToTxn": Asked(
        transactional.ADD,
        3,
        {TRANSACTIONAL_ID},
        ("allow User:* WRITE transactional_id:x", "allow User:* WRITE topic:t"),
    ),
    "AddPartitionsToTxn of brokers": Asked(
        transactional.ADD_OF_BROKERS, 5, {CLUSTER}, ("allow User:* CLUSTER_ACTION cluster",)
    ),
    "AddOffsetsToTxn": Asked(
        transactional.ADD_OFFSETS, 4, {TRANSACTIONAL_ID}, ("allow User:* WRITE transactional_id:x", *READ_GROUP)
    ),
    "EndTxn": Asked(transactional.END, 5, {TRANSACTIONAL_ID}, ("allow User:* WRITE transactional_id:x",)),
    "WriteTxnMarkers": Asked(transactional.WRITE_MARKER, 2, {CLUSTER}, ("allow User:* CLUSTER_ACTION cluster",)),
    "WriteTxnMarkers of an administrator": Asked(
        transactional.WRITE_MARKER, 2, {CLUSTER}, ("allow User:* ALTER cluster",)
    ),
    "TxnOffsetCommit": Asked(
        transactional.COMMIT_OFFSETS,
        5,
        {TRANSACTIONAL_ID},
        ("allow User:* WRITE transactional_id:x", *READ_GROUP, "allow User:* READ topic:t"),
    ),
    "UpdateFeatures": Asked(UpdateFeaturesRequest(1000), 2, {CLUSTER}, ("allow User:* ALTER cluster",)),
}


ASKED_WHEN_DENIED = [
    (ListGroupsRequest(), 4),
    (transactional.LIST, 2),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    (DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3),
    (CreateAclsRequest([]), 3),
    (DeleteAclsRequest([]), 3),
]
"""APIs that the table cannot contain. They answer without a denial, or have their own tests."""


def guard(harness: BrokerHarness, *rules: str) -> None:
    harness.listener.authorizer = StaticAuthorizer(StaticSettings(rules=rules))


def denials(value: Any) -> set[int]:
    """Yield every denial at any depth of a response."""
    if isinstance(value, list):
        return {code for each in value for code in denials(each)}
    slots = getattr(type(value), "__slots__", ())
    found = {code for slot in slots for code in denials(getattr(value, slot))}
    return found | {
        code
        for name in ("error_code", "topic_config_error_code", "partition_error_code")
        if (code := getattr(value, name, 0)) in DENIALS
    }


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerHarness]:
    harness = BrokerHarness(tmp_path)
    harness.open()
    harness.create_topic("t")
    guard(harness)
    yield harness
    harness.broker.close()


@pytest.mark.parametrize("name", ASKED)
def test_a_request_is_denied_without_a_rule(guarded: BrokerHarness, name: str) -> None:
    asked = ASKED[name]
    assert denials(guarded.call(asked.request, asked.version)) == asked.denials


@pytest.mark.parametrize("name", ASKED)
def test_a_request_is_allowed_with_its_rules(guarded: BrokerHarness, name: str) -> None:
    asked = ASKED[name]
    guard(guarded, *asked.rules)
    reply = guarded.send(asked.request, asked.version)
    guarded.broker.store.write_and_wait([])
    guarded.advance_ms(0)
    if not reply.pending:
        assert denials(reply.response) == set()


def test_offsets_require_a_right_on_the_topic(guarded: BrokerHarness) -> None:
    guard(guarded, "allow User:* ALL group:*")
    assert denials(guarded.call(commit(), 8)) == {TOPIC}
    assert denials(guarded.call(fetch_offsets(), 8)) == {TOPIC}


def test_consumer_groups_do_not_disclose_topics(guarded: BrokerHarness) -> None:
    join = ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 1000, ["t"], topic_partitions=[])
    guard(guarded, "allow User:* ALL group:*")
    assert denials(guarded.call(join, 1)) == {TOPIC}
    join.subscribed_topic_names, join.subscribed_topic_regex = None, ".*"
    reply = guarded.send(join, 1)
    guarded.broker.store.write_and_wait([])
    assert reply.response.assignment.topic_partitions == []
    guarded.listener.authorizer = None
    join.member_id, join.subscribed_topic_names, join.subscribed_topic_regex = "n", ["t"], None
    guarded.send(join, 1)
    guard(guarded, "allow User:* ALL group:*")
    (group,) = guarded.call(ConsumerGroupDescribeRequest(["g"]), 1).groups
    assert (group.error_code, group.members) == (TOPIC, [])


def test_lists_contain_only_things_that_the_client_may_describe(guarded: BrokerHarness) -> None:
    guarded.listener.authorizer = None
    guarded.create_topic("seen")
    guard(guarded, "allow User:* DESCRIBE topic:seen")
    assert [topic.name for topic in guarded.call(MetadataRequest(None), 12).topics] == ["seen"]
    assert [topic.name for topic in guarded.call(DescribeTopicPartitionsRequest([]), 0).topics] == ["seen"]
    assert guarded.call(ListGroupsRequest(), 4).groups == []


def test_topic_ids_do_not_disclose_names(guarded: BrokerHarness) -> None:
    guarded.listener.authorizer = None
    topic_id = guarded.create_topic("secret")
    guard(guarded)
    (by_id,) = guarded.call(MetadataRequest([MetadataRequestTopic(topic_id, None)]), 12).topics
    assert (by_id.error_code, by_id.name) == (TOPIC, None)
    (deleted,) = guarded.call(DeleteTopicsRequest([DeleteTopicState(None, topic_id)], [], 99), 6).responses
    assert (deleted.error_code, deleted.name) == (TOPIC, None)


def test_authorized_operations_are_returned(guarded: BrokerHarness) -> None:
    guard(guarded, "allow User:* READ topic:t", "allow User:* DESCRIBE cluster")
    request = MetadataRequest([MetadataRequestTopic(name="t")], include_topic_authorized_operations=True)
    (topic,) = guarded.call(request, 12).topics
    assert topic.topic_authorized_operations == 1 << 3 | 1 << 8
    cluster = guarded.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == 1 << 8
    guard(guarded)
    cluster = guarded.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == 0


def test_authorized_operations_are_returned_for_a_missing_topic_that_may_be_described(guarded: BrokerHarness) -> None:
    guard(guarded, "allow User:* WRITE topic:none")
    names = [MetadataRequestTopic(name="none"), MetadataRequestTopic(name="denied")]
    request = MetadataRequest(names, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    none, denied = guarded.call(request, 12).topics
    assert (none.error_code, none.topic_authorized_operations) == (3, 1 << 4 | 1 << 8)
    assert (denied.error_code, denied.topic_authorized_operations) == (TOPIC, -(2**31))


def test_a_fetch_with_a_denied_partition_still_waits(guarded: BrokerHarness) -> None:
    guarded.listener.authorizer = None
    guarded.create_topic("seen")
    guard(guarded, "allow User:* READ topic:seen")
    topics = [FetchTopic(name, partitions=[FetchPartition(0)]) for name in ("t", "seen")]
    reply = guarded.send(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics, session_epoch=-1), 12)
    assert reply.pending
    guarded.advance_ms(501)
    assert [topic.partitions[0].error_code for topic in reply.response.responses] == [TOPIC, 0]


def test_a_fetch_of_a_topic_without_a_name_is_denied(guarded: BrokerHarness) -> None:
    request = FetchRequest(max_wait_ms=0, topics=[FetchTopic("", partitions=[FetchPartition(0)])], session_epoch=-1)
    (topic,) = guarded.call(request, 12).responses
    assert topic.partitions[0].error_code == TOPIC


def test_groups_are_answered_in_the_order_of_the_request(guarded: BrokerHarness) -> None:
    guard(guarded, "allow User:* DESCRIBE group:b")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in ("a", "b", "c")])
    groups = guarded.call(request, 8).groups
    assert [(group.group_id, group.error_code) for group in groups] == [("a", GROUP), ("b", 0), ("c", GROUP)]


def test_errors_independent_of_the_client_come_before_the_denial(guarded: BrokerHarness) -> None:
    (producers,) = guarded.call(DescribeProducersRequest([TopicRequest("no/name", [0])]), 0).topics
    assert producers.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    (created,) = guarded.call(CreateTopicsRequest([CreatableTopic("__cluster_metadata", 1, 1)]), 7).topics
    assert created.error_code == ErrorCode.INVALID_REQUEST
    assert guarded.call(SyncGroupRequest("g", 1, "m"), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    share = FindCoordinatorRequest(key_type=2, coordinator_keys=[SHARE_KEY])
    assert guarded.call(share, 5).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_denials_have_an_error_message(guarded: BrokerHarness) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_TYPE, "t")])
    assert guarded.call(request, 4).results[0].error_message == "Topic authorization failed."


class Recorder(Authorizer):
    """An authorizer that records its calls. It allows nothing, everything, or everything but the cluster."""

    def __init__(self, allow: Callable[[ResourceType], bool]) -> None:
        self._allow = allow
        self.asked: set[str] = set()

    def authorize(
        self,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        log_if_denied: bool = True,
    ) -> bool:
        return self.authorize_by_resource_type(context, operation, resource_type)

    def authorize_by_resource_type(
        self, context: RequestContext, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        self.asked.add(f"{operation.name} {resource_type.name.lower()}")
        return self._allow(resource_type)


def permissions_in_the_documentation() -> dict[str, set[str]]:
    rows = re.findall(r"^\| (\w+) \| (.*?) \|", GUIDE.read_text(), re.MULTILINE)
    found = {api: set(re.findall(r"[A-Z_]{4,} (?:topic|group|cluster|transactional_id)\b", text)) for api, text in rows}
    return {api: permissions for api, permissions in found.items() if permissions}


def test_every_api_asks_what_the_documentation_says(guarded: BrokerHarness) -> None:
    guarded.listener.authorizer = None
    guarded.send(commit(), 8)
    guarded.send(InitProducerIdRequest("x", 1000), 4)
    guarded.broker.store.write_and_wait([])
    guarded.send(transactional.ADD, 3)
    for group_type in ("Consumer", "Share", "Streams"):
        guarded.send(ASKED[f"{group_type}GroupHeartbeat"].request, 1)
    guarded.broker.store.write_and_wait([])
    beside_cluster: Callable[[ResourceType], bool] = lambda kind: kind is not ResourceType.CLUSTER  # noqa: E731
    policies = [lambda _: False, beside_cluster, lambda _: True]
    found: dict[str, set[str]] = {}
    for request, version in ASKED_WHEN_DENIED:
        found[type(request).__name__.removesuffix("Request")] = (recorder := Recorder(policies[0])).asked
        guarded.listener.authorizer = recorder
        guarded.send(request, version)
    for api, request in share.of_session(guarded.broker.topics.all()[0].id).items():
        guarded.listener.authorizer, found[api] = (recorder := Recorder(policies[2])), recorder.asked
        guarded.send(request, 1)
    for asked in ASKED.values():
        # If the request is allowed, this API also returns the authorized operations.
        returns_operations = isinstance(asked.request, DescribeTopicPartitionsRequest)
        for policy in policies[:1] if returns_operations else policies:
            recorder = guarded.listener.authorizer = Recorder(policy)
            guarded.send(asked.request, asked.version)
            found.setdefault(type(asked.request).__name__.removesuffix("Request"), set()).update(recorder.asked)
    assert found == permissions_in_the_documentation()
    free = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry"}
    free |= {f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")}
    assert {handler.name for handler in guarded.broker.handlers()} - free == found.keys()
