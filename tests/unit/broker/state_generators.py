"""Requests that leave as much data behind as each API can, and reasons why other APIs leave nothing.

Each API of the broker is either in `GENERATORS` or in `LEAVES_NOTHING`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from klamm.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from klamm.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from klamm.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from klamm.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from klamm.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.push_telemetry import PushTelemetryRequest
from klamm.wire.messages.share_fetch import FetchPartition as ShareFetchPartition
from klamm.wire.messages.share_fetch import FetchTopic as ShareFetchTopic
from klamm.wire.messages.share_fetch import ShareFetchRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.broker.broker_harness import BrokerHarness, records

TOPIC: Final = "attacked"
PARTITIONS: Final = 100
_LONG: Final = "x" * 30_000
_NAMES: Final = [f"{number:0249}" for number in range(300)]

Generator: TypeAlias = Callable[[BrokerHarness, int], object]
"""A function that sends the n-th request of a client that tries to leave behind as much as possible."""


def ask(harness: BrokerHarness, request: Any, version: int) -> Any:
    """Return the response to a request once it is durable; None if there is none yet."""
    reply = harness.send(request, version)
    if reply.pending:
        harness.scheduler.run_due()
        harness.broker.store.write_and_wait(())
        harness.scheduler.run_due()
    return reply.answers[0] if reply.answers else None


def _name(number: int) -> str:
    return f"invented-{number}-{_LONG}"


def produce(harness: BrokerHarness, number: int) -> object:
    """Produce with another producer id for each partition."""
    data = [
        PartitionProduceData(index, records(b"x", producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0))
        for index in range(PARTITIONS)
    ]
    answer = ask(harness, ProduceRequest(None, 1, 1000, [TopicProduceData(TOPIC, partition_data=data)]), 9)
    harness.broker.logs.producers.close()
    return answer


def fetch(harness: BrokerHarness, number: int) -> object:
    topics = [FetchTopic(f"{number}-{name[-200:]}", partitions=[FetchPartition(0)]) for name in _NAMES]
    return ask(harness, FetchRequest(session_epoch=0, topics=topics), 12)


def metadata(harness: BrokerHarness, number: int) -> object:
    answer = ask(
        harness, MetadataRequest([MetadataRequestTopic(name=f"m{number}-{name[-200:]}") for name in _NAMES[:20]]), 9
    )
    harness.broker.auto_creation.wait()
    return answer


def offset_commit(harness: BrokerHarness, number: int) -> object:
    partitions = [OffsetCommitRequestPartition(index, 1, committed_metadata="m" * 4096) for index in range(PARTITIONS)]
    return ask(
        harness,
        OffsetCommitRequest(_name(number), -1, "", topics=[OffsetCommitRequestTopic(TOPIC, partitions=partitions)]),
        9,
    )


def _join(harness: BrokerHarness, number: int, size: int = 200_000) -> tuple[str, Any]:
    group = _name(number)
    protocol = JoinGroupRequestProtocol("range", b"x" * size)
    request = JoinGroupRequest(group, 10_000, 10_000, "", "instance", "consumer", [protocol])
    reply = harness.send(request, 9)
    return group, reply


def join_group(harness: BrokerHarness, number: int) -> object:
    return _join(harness, number)


def sync_group(harness: BrokerHarness, number: int) -> object:
    """Sync with an assignment of maximum length."""
    group, reply = _join(harness, number, 10)
    harness.advance_ms(3_001)
    if not reply.answers or reply.answers[0].error_code:
        return None
    joined = reply.answers[0]
    assignment = SyncGroupRequestAssignment(joined.member_id, b"a" * 1_000_000)
    request = SyncGroupRequest(
        group, joined.generation_id, joined.member_id, "instance", "consumer", "range", [assignment]
    )
    return ask(harness, request, 5)


def consumer_group_heartbeat(harness: BrokerHarness, number: int) -> object:
    request = ConsumerGroupHeartbeatRequest(
        _name(number), "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=_NAMES, topic_partitions=[]
    )
    return ask(harness, request, 1)


def share_group_heartbeat(harness: BrokerHarness, number: int) -> object:
    return ask(harness, ShareGroupHeartbeatRequest(_name(number), "m", 0, subscribed_topic_names=_NAMES), 1)


def streams_group_heartbeat(harness: BrokerHarness, number: int) -> object:
    topology = Topology(0, [Subtopology("0", [f"s{name[-200:]}" for name in _NAMES])])
    request = StreamsGroupHeartbeatRequest(
        _name(number),
        "m",
        0,
        rebalance_timeout_ms=1000,
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
    )
    return ask(harness, request, 0)


def share_fetch(harness: BrokerHarness, number: int) -> object:
    """Fetch from an existing group."""
    group = f"shared-{number}"
    ask(harness, ShareGroupHeartbeatRequest(group, "m", 0, subscribed_topic_names=[TOPIC]), 1)
    topic = harness.broker.topics.get(TOPIC)
    assert topic is not None
    partitions = [ShareFetchPartition(index) for index in range(PARTITIONS)]
    request = ShareFetchRequest(group, "m", 0, max_records=100, topics=[ShareFetchTopic(topic.id, partitions)])
    return ask(harness, request, 1)


def alter_share_group_offsets(harness: BrokerHarness, number: int) -> object:
    partitions = [AlterShareGroupOffsetsRequestPartition(index, 0) for index in range(PARTITIONS)]
    topic = AlterShareGroupOffsetsRequestTopic(TOPIC, partitions)
    return ask(harness, AlterShareGroupOffsetsRequest(_name(number), [topic]), 0)


def create_topics(harness: BrokerHarness, number: int) -> object:
    config = CreatableTopicConfig("leader.replication.throttled.replicas", ",".join(["1000:0"] * 4000))
    return ask(harness, CreateTopicsRequest([CreatableTopic(f"c{number}", 3, 1, configs=[config])]), 7)


def create_partitions(harness: BrokerHarness, number: int) -> object:
    return ask(harness, CreatePartitionsRequest([CreatePartitionsTopic("growing", 2 + 20 * number, None)], 1000), 3)


def init_producer_id(harness: BrokerHarness, number: int) -> Any:
    return ask(harness, InitProducerIdRequest(_name(number), 1000), 4)


def add_partitions_to_txn(harness: BrokerHarness, number: int) -> object:
    transactional_id = f"partitions-{number}"
    producer = ask(harness, InitProducerIdRequest(transactional_id, 1000), 4)
    if producer.error_code:
        return producer
    topic = AddPartitionsToTxnTopic(TOPIC, list(range(PARTITIONS)))
    request = AddPartitionsToTxnRequest([], transactional_id, producer.producer_id, producer.producer_epoch, [topic])
    return ask(harness, request, 3)


def _open_transaction(harness: BrokerHarness, transactional_id: str, group: str) -> Any:
    producer = ask(harness, InitProducerIdRequest(transactional_id, 1000), 4)
    if not producer.error_code:
        request = AddOffsetsToTxnRequest(transactional_id, producer.producer_id, producer.producer_epoch, group)
        ask(harness, request, 3)
    return producer


def add_offsets_to_txn(harness: BrokerHarness, number: int) -> object:
    return _open_transaction(harness, f"added-{number}", _name(number)[:3000])


def txn_offset_commit(harness: BrokerHarness, number: int) -> object:
    group, transactional_id = f"txn-{_name(number)[:3000]}", f"committed-{number}"
    producer = _open_transaction(harness, transactional_id, group)
    partitions = [TxnOffsetCommitRequestPartition(index, 1, -1, "m" * 4096) for index in range(PARTITIONS)]
    topic = TxnOffsetCommitRequestTopic(TOPIC, partitions=partitions)
    request = TxnOffsetCommitRequest(
        transactional_id, group, producer.producer_id, producer.producer_epoch, topics=[topic]
    )
    return ask(harness, request, 3)


def create_acls(harness: BrokerHarness, number: int) -> object:
    creations = [AclCreation(2, f"{number}-{index}-{_LONG[:249]}", 3, f"User:{_LONG}", "*", 3, 3) for index in range(5)]
    return ask(harness, CreateAclsRequest(creations), 3)


def alter_configs(harness: BrokerHarness, number: int) -> object:
    config = AlterableConfig("consumer.session.timeout.ms", "50000")
    return ask(harness, AlterConfigsRequest([AlterConfigsResource(32, _name(number), [config])]), 2)


def incremental_alter_configs(harness: BrokerHarness, number: int) -> object:
    """Alter a metrics subscription, with names of maximum length."""
    config = IncrementalConfig("metrics", 0, _LONG)
    return ask(harness, IncrementalAlterConfigsRequest([IncrementalResource(16, _name(number), [config])]), 1)


def alter_client_quotas(harness: BrokerHarness, number: int) -> object:
    entity = [RequestEntityData("user", _name(number)), RequestEntityData("client-id", _LONG)]
    entry = RequestEntryData(entity, [OpData("producer_byte_rate", 1000.0, False)])
    return ask(harness, AlterClientQuotasRequest([entry]), 1)


def alter_user_scram_credentials(harness: BrokerHarness, number: int) -> object:
    upsertion = ScramCredentialUpsertion(_name(number), 1, 4096, b"s" * 30_000, b"p" * 32)
    return ask(harness, AlterUserScramCredentialsRequest([], [upsertion]), 0)


def create_delegation_token(harness: BrokerHarness, number: int) -> object:
    renewers = [CreatableRenewers("User", f"{number}-{_LONG}"), CreatableRenewers("User", _LONG)]
    return ask(harness, CreateDelegationTokenRequest(None, None, renewers, -1), 3)


def get_telemetry_subscriptions(harness: BrokerHarness, number: int) -> object:
    return ask(harness, GetTelemetrySubscriptionsRequest((1 << 64 | number).to_bytes(16, "big")), 0)


def push_telemetry(harness: BrokerHarness, number: int) -> object:
    return ask(harness, PushTelemetryRequest((1 << 65 | number).to_bytes(16, "big"), 1, False, 0, b""), 0)


GENERATORS: Final[dict[ApiKey, Generator]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.CREATE_DELEGATION_TOKEN: create_delegation_token,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: push_telemetry,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
    ApiKey.SHARE_FETCH: share_fetch,
    ApiKey.STREAMS_GROUP_HEARTBEAT: streams_group_heartbeat,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: alter_share_group_offsets,
}


def _because(reason: str, *api_keys: ApiKey) -> dict[ApiKey, str]:
    return dict.fromkeys(api_keys, reason)


LEAVES_NOTHING: Final = {
    **_because(
        "reads",
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ),
    **_because("makes at most Kafka's three internal topics", ApiKey.FIND_COORDINATOR),
    **_because(
        "takes away",
        ApiKey.LEAVE_GROUP,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.DELETE_ACLS,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    **_because(
        "changes what is there, which takes no more by that",
        ApiKey.HEARTBEAT,
        ApiKey.END_TXN,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.SHARE_ACKNOWLEDGE,
    ),
    **_because("what it brings is not kept", ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE),
    **_because("a level of each feature", ApiKey.UPDATE_FEATURES),
    **_because("needs CLUSTER_ACTION, and adds to what producers have", ApiKey.WRITE_TXN_MARKERS),
    **_because("belongs to the connection", ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
}


def prepare(harness: BrokerHarness) -> None:
    """Create what the generators need."""
    harness.create_topic(TOPIC, PARTITIONS)
    harness.create_topic("growing", 1)
