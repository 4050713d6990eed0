"""Requests of which a gateway's client may do a part: the answers show and do only that part."""

from uuid import uuid4

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_cluster import DescribeClusterRequest
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup as OffsetsOfGroup
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestTopic as OffsetsOfTopic
from klamm.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup as DescribedOffsetsOfGroup,
)
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponseTopic as DescribedOffsets
from klamm.wire.messages.describe_transactions import DescribeTransactionsRequest
from klamm.wire.messages.end_txn import EndTxnRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.init_producer_id import InitProducerIdRequest
from klamm.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.share_fetch import FetchPartition as SharedPartition
from klamm.wire.messages.share_fetch import FetchTopic as SharedTopic
from klamm.wire.messages.share_fetch import ShareFetchRequest
from klamm.wire.messages.share_group_describe import ShareGroupDescribeRequest
from klamm.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from klamm_gateway.authorization.rules import authorize
from klamm_gateway.layout import Cluster
from tests.contract.gateway_nodes import gateway
from tests.contract.test_gateway_authorization import BATCH, DENIED, OPEN, Powerless, WithoutTopics


@pytest.fixture(scope="module")
def front():
    """Yield a gateway whose clients may use topics that begin with `open`, and the group `g`.

    The broker is `front.behind`.
    """
    with EmbeddedServer() as broker:
        for name in ("open", "closed"):
            broker.create_topic(name)
            broker.produce(name, b"from before")
        with gateway(broker.bootstrap, OPEN) as server:
            server.behind = broker
            yield server


@pytest.fixture
def client(front):
    with RawClient(front.address()) as connected:
        yield connected


def errors(topics, partitions="partitions"):
    return {topic.name: [each.error_code for each in getattr(topic, partitions)] for topic in topics}


def test_metadata_shows_only_topics_that_the_client_may_describe(client):
    everything = client.call(MetadataRequest(None), 12)
    assert [topic.name for topic in everything.topics] == ["open"]
    named = client.call(MetadataRequest([MetadataRequestTopic(name=name) for name in ("open", "closed", "new")]), 9)
    assert {topic.name: topic.error_code for topic in named.topics} == {"open": 0, "closed": DENIED, "new": DENIED}
    only_denied = client.call(MetadataRequest([MetadataRequestTopic(name="closed")]), 9)
    assert [(topic.name, topic.error_code) for topic in only_denied.topics] == [("closed", DENIED)]
    assert len(only_denied.brokers) == 1


def test_a_client_without_the_right_creates_no_topic(client):
    wanted = MetadataRequest([MetadataRequestTopic(name="open-not-there")], allow_auto_topic_creation=True)
    (topic,) = client.call(wanted, 9).topics
    assert topic.error_code == 3
    assert client.call(wanted, 9).topics[0].error_code == 3


@pytest.mark.parametrize("version", range(4))
def test_early_versions_of_metadata_create_no_topic_without_the_right(client, version):
    """Early versions of Metadata have no field that forbids to create topics."""
    for _ in range(2):
        wanted = MetadataRequest([MetadataRequestTopic(name=name) for name in ("open", "closed", "open-not-there")])
        found = client.call(wanted, version).topics
        assert {topic.name: topic.error_code for topic in found} == {"open": 0, "closed": DENIED, "open-not-there": 3}
    (denied,) = client.call(MetadataRequest([MetadataRequestTopic(name="closed")]), version).topics
    assert (denied.name, denied.error_code) == ("closed", DENIED)


class CountedName(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_cost_of_metadata_grows_linearly_with_denied_topics(monkeypatch):
    monkeypatch.setattr(CountedName, "compared", 0)
    wanted = [MetadataRequestTopic(name=CountedName(f"topic-{number}")) for number in range(2000)]
    verdict = authorize(MetadataRequest(wanted), Powerless(ApiKey.METADATA, 9), Cluster())
    assert verdict.message.topics == []
    assert CountedName.compared < 4 * len(wanted)
    answer = verdict.change(MetadataResponse())
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [(each.name, DENIED) for each in wanted]


@pytest.mark.parametrize("named", [True, False])
def test_the_cost_of_offset_requests_grows_linearly_with_denied_topics(monkeypatch, named):
    monkeypatch.setattr(CountedName, "compared", 0)
    topics = [DescribedOffsets(CountedName(f"topic-{number}")) for number in range(1000)]
    request = DescribeShareGroupOffsetsRequest([OffsetsOfGroup("g", topics=[] if named else None)])
    verdict = authorize(request, WithoutTopics(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1), Cluster())
    (group,) = verdict.change(DescribeShareGroupOffsetsResponse(groups=[DescribedOffsetsOfGroup("g", topics)])).groups
    assert len(group.topics) == (len(topics) if named else 0)
    assert CountedName.compared < 4 * len(topics)


def test_metadata_by_id_hides_the_name(front, client):
    cluster = front.api_set().cluster
    client.call(MetadataRequest(None), 12)
    (closed,) = [key for key, name in cluster._names.items() if name == "closed"]
    (topic,) = client.call(MetadataRequest([MetadataRequestTopic(topic_id=closed, name=None)]), 12).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (DENIED, None, closed)


@pytest.mark.parametrize("names", [("open", "closed"), ("closed",), ("open",)])
def test_produce_writes_only_to_allowed_topics(client, names):
    data = [TopicProduceData(name, partition_data=[PartitionProduceData(0, BATCH)]) for name in names]
    response = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data), 9)
    found = errors(response.responses, "partition_responses")
    assert found == {name: [DENIED if name == "closed" else 0] for name in names}


def test_produce_without_response_that_is_denied_closes_the_connection(client):
    data = [TopicProduceData("closed", partition_data=[PartitionProduceData(0, BATCH)])]
    client.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=data), 9)
    assert client.at_end()


@pytest.mark.parametrize("names", [("open", "closed"), ("closed",)])
def test_fetch_reads_only_allowed_topics(client, names):
    topics = [FetchTopic(name, partitions=[FetchPartition(0, partition_max_bytes=10_000)]) for name in names]
    response = client.call(FetchRequest(max_wait_ms=100, max_bytes=10_000, session_epoch=0, topics=topics), 11)
    found = {one.topic: (one.partitions[0].error_code, bool(one.partitions[0].records)) for one in response.responses}
    assert found == {name: (DENIED, False) if name == "closed" else (0, True) for name in names}
    assert response.session_id == 0, "each Fetch is checked"


def test_fetch_by_an_unknown_topic_id_is_denied(front, client):
    client.call(MetadataRequest(None), 12)
    ids = {name: topic_id for topic_id, name in front.api_set().cluster._names.items()}
    wanted = {ids["open"]: 0, ids["closed"]: DENIED, b"x" * 16: 100}
    topics = [FetchTopic(topic_id=each, partitions=[FetchPartition(0, partition_max_bytes=100)]) for each in wanted]
    response = client.call(FetchRequest(max_wait_ms=100, max_bytes=10_000, topics=topics), 13)
    assert {one.topic_id: one.partitions[0].error_code for one in response.responses} == wanted


def test_offsets_are_committed_and_fetched_only_for_allowed_topics(client):
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=-1)]) for name in ("open", "closed")]
    assert errors(client.call(ListOffsetsRequest(-1, 0, topics), 7).topics) == {"open": [0], "closed": [DENIED]}
    commit = [
        OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 1)]) for name in ("open", "closed")
    ]
    response = client.call(OffsetCommitRequest("g", topics=commit), 8)
    assert errors(response.topics) == {"open": [0], "closed": [DENIED]}
    wanted = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in ("open", "closed")]
    groups = [OffsetFetchRequestGroup("g", topics=wanted), OffsetFetchRequestGroup("h", topics=wanted)]
    found = {one.group_id: one for one in client.call(OffsetFetchRequest(groups=groups), 8).groups}
    assert errors(found["g"].topics) == {"open": [0], "closed": [DENIED]}
    assert (found["h"].error_code, found["h"].topics) == (30, [])


@pytest.fixture
def shared(front):
    """Yield a member of the share group `of-share` that reads `closed`.

    It is connected to the broker, not to the gateway. The value is its connection, its id, and the topic's id.
    """
    broker = front.behind
    with RawClient(broker.address()) as direct:
        member = str(uuid4())
        joined = direct.call(ShareGroupHeartbeatRequest("of-share", member, 0, None, ["closed"]), 1)
        assert joined.error_code == 0
        (topic,) = direct.call(MetadataRequest([MetadataRequestTopic(name="closed")]), 12).topics
        assigned = joined.assignment
        while assigned is None or not assigned.topic_partitions:
            assigned = direct.call(ShareGroupHeartbeatRequest("of-share", member, joined.member_epoch), 1).assignment
        yield direct, member, topic.topic_id
        direct.call(ShareGroupHeartbeatRequest("of-share", member, -1), 1)


def share_fetch(member, epoch, *topics):
    return ShareFetchRequest("of-share", member, epoch, 2000, 1, max_records=10, topics=list(topics))


def test_a_client_gets_no_records_from_the_share_session_of_another_member(front, client, shared):
    """A client may read the group and know the member's id.

    It must not continue the member's session, whose topic it may not read.
    """
    direct, member, topic_id = shared
    closed = SharedTopic(topic_id, [SharedPartition(0)])
    assert direct.call(share_fetch(member, 0, closed), 1).error_code == 0
    front.behind.produce("closed", b"a secret")
    assert client.call(share_fetch(member, 1, closed), 1).error_code == DENIED
    stolen = client.call(share_fetch(member, 1), 1)
    assert (stolen.error_code, stolen.responses) == (DENIED, [])


@pytest.fixture
def modern(front):
    """Yield a client with a member in the group `of-modern`, which reads `closed`. It is connected to the broker."""
    with RawClient(front.behind.address()) as direct:
        first = ConsumerGroupHeartbeatRequest("of-modern", "m", 0, None, None, 5000, ["closed"], topic_partitions=[])
        assert direct.call(first, 0).error_code == 0
        yield direct
        direct.call(ConsumerGroupHeartbeatRequest("of-modern", "m", -1), 0)


def test_a_group_is_described_only_if_all_its_topics_may_be_described(client, shared, modern):
    for direct, request in (
        (shared[0], ShareGroupDescribeRequest(["of-share"])),
        (modern, ConsumerGroupDescribeRequest(["of-modern"])),
    ):
        assert "closed" in repr(direct.call(request, 1).groups[0].members)
        (group,) = client.call(request, 1).groups
        assert (group.error_code, group.group_id, group.members) == (DENIED, request.group_ids[0], [])
        assert "closed" not in repr(group)


@pytest.mark.parametrize("named", [True, False])
def test_share_group_offsets_show_only_topics_that_the_client_may_describe(client, shared, named):
    direct, member, topic_id = shared
    assert direct.call(share_fetch(member, 0, SharedTopic(topic_id, [SharedPartition(0)])), 1).error_code == 0
    topics = [OffsetsOfTopic(name, [0]) for name in ("closed", "open")] if named else None
    request = DescribeShareGroupOffsetsRequest([OffsetsOfGroup("of-share", topics), OffsetsOfGroup("other", topics)])
    assert "closed" in {topic.topic_name for topic in direct.call(request, 0).groups[0].topics}
    groups = {group.group_id: group for group in client.call(request, 0).groups}
    found = {
        topic.topic_name: [(each.error_code, each.start_offset) for each in topic.partitions]
        for topic in groups["of-share"].topics
    }
    assert found == ({"closed": [(DENIED, 0)], "open": [(0, -1)]} if named else {})
    assert (groups["other"].error_code, groups["other"].topics) == (30, [])


def test_a_transaction_shows_only_topics_that_the_client_may_describe(front, client):
    with RawClient(front.behind.address()) as direct:
        producer = direct.call(InitProducerIdRequest("t", 10_000), 3)
        ids = producer.producer_id, producer.producer_epoch
        topics = [AddPartitionsToTxnTopic(name, [0]) for name in ("closed", "open")]
        direct.call(AddPartitionsToTxnRequest([], "t", *ids, topics), 3)
        request = DescribeTransactionsRequest(["t", "other"])
        assert [each.topic for each in direct.call(request, 0).transaction_states[0].topics] == ["closed", "open"]
        states = {each.transactional_id: each for each in client.call(request, 0).transaction_states}
        assert [each.topic for each in states["t"].topics] == ["open"]
        assert states["other"].error_code == 53
        assert direct.call(EndTxnRequest("t", *ids, False), 3).error_code == 0


def test_the_gateway_authorizes_requests_about_groups_and_the_cluster(client):
    response = client.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert {one.key: one.error_code for one in response.coordinators} == {"g": 0, "h": 30}
    assert client.call(FindCoordinatorRequest("h"), 2).error_code == 30
    (topic,) = client.call(CreateTopicsRequest([CreatableTopic("open-new", 1, 1)]), 5).topics
    assert topic.error_code == DENIED
    cluster = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert cluster.cluster_authorized_operations == 0, "of the client, not of the gateway's account"


@pytest.mark.parametrize(("rule", "codes"), [("CLUSTER_ACTION CLUSTER", [0, 0]), ("DESCRIBE TOPIC:open", [0, DENIED])])
def test_leader_epochs_require_describe_or_the_right_of_followers(rule, codes):
    settings = ["listeners.default.authorizer=static", f'listeners.default.static.rules=["allow User:* {rule}"]']
    wanted = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, -1, 0)]) for name in ("open", "other")]
    with EmbeddedServer() as broker:
        for name in ("open", "other"):
            broker.create_topic(name)
        with gateway(broker.bootstrap, settings) as front, RawClient(front.address()) as client:
            topics = client.call(OffsetForLeaderEpochRequest(-1, wanted), 3).topics
    assert [topic.partitions[0].error_code for topic in sorted(topics, key=lambda one: one.topic)] == codes


@pytest.mark.parametrize("create", ["CREATE CLUSTER", "CREATE TOPIC:*"])
def test_configs_of_a_created_topic_are_shown_only_with_the_right(create):
    rules = f'["allow User:* {create}", "allow User:* DESCRIBE_CONFIGS TOPIC:shown"]'
    settings = ["listeners.default.authorizer=static", f"listeners.default.static.rules={rules}"]
    with EmbeddedServer() as broker, gateway(broker.bootstrap, settings) as front:
        with RawClient(front.address()) as client:
            wanted = [CreatableTopic(name, 3, 1) for name in ("shown", "hidden")]
            topics = {each.name: each for each in client.call(CreateTopicsRequest(wanted), 5).topics}
        assert broker.admin.topics() == {"shown": 3, "hidden": 3}
    shown, hidden = topics["shown"], topics["hidden"]
    assert (shown.error_code, shown.topic_config_error_code, shown.num_partitions) == (0, 0, 3)
    assert shown.configs
    assert (hidden.error_code, hidden.topic_config_error_code) == (0, DENIED)
    assert (hidden.num_partitions, hidden.replication_factor, hidden.configs) == (-1, -1, None)
