"""Every API asks the authorizer: what it says without a rule, and which rules suffice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages.alter_client_quotas import AlterClientQuotasRequest, RequestEntityData, RequestEntryData
from klamm.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from klamm.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from klamm.wire.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from klamm.wire.messages.elect_leaders import ElectLeadersRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from klamm.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.join_group import JoinGroupRequest
from klamm.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from klamm_authorizers.settings import StaticSettings
from klamm_authorizers.static import StaticAuthorizer
from tests.unit.broker.broker_harness import BrokerHarness, records

TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = {TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID}
TOPIC_TYPE, BROKER_TYPE = 2, 4


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the denials that it gets without any rule, and rules with which it gets none."""

    request: Any
    version: int
    denials: set[ErrorCode]
    rules: tuple[str, ...] = field(default=())


def fetch() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic("t", partitions=[FetchPartition(0)])], session_epoch=-1)


def produce(transactional_id: str | None = None) -> ProduceRequest:
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, records(b"x"))])]
    return ProduceRequest(transactional_id, -1, 1000, data)


def commit() -> OffsetCommitRequest:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    return OffsetCommitRequest("g", topics=topics)


def fetch_offsets() -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])


READ_GROUP = ("allow User:* READ group:g",)
ASKED = {
    "Produce": Asked(produce(), 9, {TOPIC}, ("allow User:* WRITE topic:t",)),
    "Produce with a transaction": Asked(
        produce("x"), 9, {TRANSACTIONAL_ID}, ("allow User:* WRITE transactional_id:x", "allow User:* WRITE topic:t")
    ),
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
        MetadataRequest([MetadataRequestTopic(name="new")], allow_auto_topic_creation=True),
        12,
        {TOPIC},
        ("allow User:* DESCRIBE,CREATE topic:new",),
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
    "DeleteTopics": Asked(DeleteTopicsRequest(topic_names=["t"]), 5, {TOPIC}, ("allow User:* DELETE topic:t",)),
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
    "AlterConfigs": Asked(
        AlterConfigsRequest([AlterConfigsResource(TOPIC_TYPE, "t")]),
        2,
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
        CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)]), 3, {TOPIC}, ("allow User:* ALTER topic:t",)
    ),
    "DeleteGroups": Asked(DeleteGroupsRequest(["g"]), 2, {GROUP}, ("allow User:* DELETE group:g",)),
    "ElectLeaders": Asked(ElectLeadersRequest(0, None), 2, {CLUSTER}, ("allow User:* ALTER cluster",)),
    "ListPartitionReassignments": Asked(
        ListPartitionReassignmentsRequest(topics=None), 0, {CLUSTER}, ("allow User:* DESCRIBE cluster",)
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
}


def guard(harness: BrokerHarness, *rules: str) -> None:
    harness.listener.authorizer = StaticAuthorizer(StaticSettings(rules=rules))


def denials(value: Any) -> set[int]:
    """Every denial anywhere in a response."""
    if isinstance(value, list):
        return {code for each in value for code in denials(each)}
    slots = getattr(type(value), "__slots__", ())
    found = {code for slot in slots for code in denials(getattr(value, slot))}
    return found | {
        code for name in ("error_code", "topic_config_error_code") if (code := getattr(value, name, 0)) in DENIALS
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
def test_denied_without_a_rule(guarded: BrokerHarness, name: str) -> None:
    asked = ASKED[name]
    assert denials(guarded.call(asked.request, asked.version)) == asked.denials


@pytest.mark.parametrize("name", ASKED)
def test_allowed_by_its_rules(guarded: BrokerHarness, name: str) -> None:
    asked = ASKED[name]
    guard(guarded, *asked.rules)
    reply = guarded.send(asked.request, asked.version)
    guarded.broker.store.write_and_wait([])
    guarded.advance_ms(0)
    if not reply.pending:
        assert denials(reply.response) == set()


def test_what_only_the_topic_denies(guarded: BrokerHarness) -> None:
    guard(guarded, "allow User:* ALL group:*")
    assert denials(guarded.call(commit(), 8)) == {TOPIC}
    assert denials(guarded.call(fetch_offsets(), 8)) == {TOPIC}


def test_lists_are_filtered(guarded: BrokerHarness) -> None:
    guarded.listener.authorizer = None
    guarded.create_topic("seen")
    guard(guarded, "allow User:* DESCRIBE topic:seen")
    assert [topic.name for topic in guarded.call(MetadataRequest(None), 12).topics] == ["seen"]
    assert [topic.name for topic in guarded.call(DescribeTopicPartitionsRequest([]), 0).topics] == ["seen"]
    assert guarded.call(ListGroupsRequest(), 4).groups == []


def test_ids_do_not_tell_names(guarded: BrokerHarness) -> None:
    guarded.listener.authorizer = None
    topic_id = guarded.create_topic("secret")
    guard(guarded)
    (by_id,) = guarded.call(MetadataRequest([MetadataRequestTopic(topic_id, None)]), 12).topics
    assert (by_id.error_code, by_id.name) == (TOPIC, None)
    (deleted,) = guarded.call(DeleteTopicsRequest([DeleteTopicState(None, topic_id)]), 6).responses
    assert (deleted.error_code, deleted.name) == (TOPIC, None)


def test_operations_are_told(guarded: BrokerHarness) -> None:
    guard(guarded, "allow User:* READ topic:t", "allow User:* DESCRIBE cluster")
    request = MetadataRequest([MetadataRequestTopic(name="t")], include_topic_authorized_operations=True)
    (topic,) = guarded.call(request, 12).topics
    assert topic.topic_authorized_operations == 1 << 3 | 1 << 8
    cluster = guarded.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == 1 << 8
    guard(guarded)
    cluster = guarded.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == 0


def test_every_api_that_needs_a_permission_is_here(guarded: BrokerHarness) -> None:
    free = {"ApiVersions", "DescribeCluster", "ListGroups"}
    elsewhere = {"CreateAcls", "DescribeAcls", "DeleteAcls"}
    served = {handler.name for handler in guarded.broker.handlers()}
    assert served - free - elsewhere == {
        type(asked.request).__name__.removesuffix("Request") for asked in ASKED.values()
    }
