"""The gateway asks its listener's authorizer about each request, whatever its API. Denied names do not reach a node."""

import inspect
from uuid import uuid4

import pytest

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation, ResourceType
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.api_keys import ApiKey, load
from klamm.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from klamm.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestPartition as AlteredPartition
from klamm.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic as AlteredTopic
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from klamm.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequestTopic as DeletedTopic
from klamm.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
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
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
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
from klamm.wire.primitives import WireError
from klamm.wire.records import Record, encode_batch
from klamm_gateway.authorization.checks import LocalAnswer
from klamm_gateway.authorization.rules import RULES, authorize
from klamm_gateway.forwarded_apis import forwarded_apis
from klamm_gateway.layout import Cluster
from tests.contract.gateway_nodes import gateway

SECRET = "secret-name"
SECRET_ID = b"secret-topic-id!"
DENIED = 29
OPEN = [
    "listeners.default.authorizer=static",
    'listeners.default.static.rules=["allow User:ANONYMOUS READ,WRITE,DESCRIBE TOPIC:open*",'
    '"allow User:ANONYMOUS DESCRIBE TRANSACTIONAL_ID:t", "allow User:ANONYMOUS READ,DESCRIBE GROUP:g",'
    '"allow User:ANONYMOUS READ,DESCRIBE GROUP:of-*"]',
]
BATCH = bytes(encode_batch([Record(0, 1000, None, b"value", ())]))

# Requests to these APIs name nothing that has an owner, or the gateway filters the responses.
PASSED_ON = {
    ApiKey.METADATA,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}


def filled(kind):
    """Return a message of this class that has a value in every name, id and list."""
    module = inspect.getmodule(kind)
    made = kind()
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name == "self":
            continue
        annotation = parameter.annotation.removesuffix(" | None")
        value = getattr(made, name)
        if annotation == "str":
            value = SECRET
        elif annotation == "bytes" and "topic_id" in name:
            value = SECRET_ID
        elif annotation == "list[str]":
            value = [SECRET]
        elif annotation == "list[int]":
            value = [0]
        elif annotation.startswith("list["):
            inner = getattr(module, annotation[5:-1], None)
            value = [filled(inner)] if inner is not None else value
        elif name == "resource_type":
            value = 2
        elif name == "acks":
            value = 1
        setattr(made, name, value)
    return made


def encoded(message, version):
    """Return the bytes of a version. Fields that the version lacks are set to their defaults."""
    for name in message.__slots__:
        alone = type(message)()
        default = getattr(alone, name)
        setattr(alone, name, getattr(message, name))
        try:
            alone.encode(version)
        except WireError:
            setattr(message, name, default)
    return message.encode(version)


def every_version():
    for spec, versions in forwarded_apis():
        for version in {versions.start, versions.stop - 1}:
            yield pytest.param(spec, version, id=f"{spec.name}-v{version}")


class Powerless:
    """The context of a request whose client has no rights."""

    def __init__(self, api_key, api_version):
        self.api_key, self.api_version = api_key, api_version

    def authorize(self, *_, **__):
        return False

    authorize_by_resource_type = authorize


@pytest.mark.parametrize(("spec", "version"), list(every_version()))
def test_a_client_without_rights_gets_no_name_to_a_node(spec, version):
    """For each forwarded API: the gateway refuses the request, or the forwarded request names nothing."""
    kind = vars(load(spec.api_key))[f"{spec.name}Request"]
    message = filled(kind)
    for filter_field in ("states_filter", "types_filter", "state_filters", "transactional_id_pattern"):
        if hasattr(message, filter_field):
            # These fields have no names. They filter a list.
            setattr(message, filter_field, getattr(kind(), filter_field))
    # The gateway gets the request with the fields that this version has.
    message = kind.decode(version, encoded(message, version), 0)
    try:
        verdict = authorize(message, Powerless(spec.api_key, version), Cluster())
    except KafkaError:
        return
    if isinstance(verdict, LocalAnswer):
        assert verdict.response.encode(version)
        return
    assert spec.api_key in PASSED_ON
    assert SECRET.encode() not in verdict.message.encode(version)


class AllTopicsButOne(Powerless):
    """The context of a request whose client has all rights on all topics but `SECRET`, and none on the cluster."""

    def authorize(self, _operation, kind, name, **_):
        return kind is not ResourceType.CLUSTER and (kind is not ResourceType.TOPIC or name != SECRET)

    def authorize_by_resource_type(self, *_):
        return True


@pytest.mark.parametrize(("spec", "version"), list(every_version()))
def test_a_denied_topic_does_not_reach_a_node_if_all_others_are_allowed(spec, version):
    """The authorizer must decide on each topic of the request, not on topics in general."""
    kind = vars(load(spec.api_key))[f"{spec.name}Request"]
    message = kind.decode(version, encoded(with_topics(kind), version), 0)
    cluster = Cluster()
    cluster.note_topic(SECRET_ID, SECRET)
    try:
        verdict = authorize(message, AllTopicsButOne(spec.api_key, version), cluster)
    except KafkaError:
        return
    # For these APIs the gateway changes the response instead.
    if not isinstance(verdict, LocalAnswer) and spec.api_key not in (
        ApiKey.METADATA,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ):
        sent = verdict.message.encode(version)
        assert SECRET.encode() not in sent
        assert SECRET_ID not in sent


class OnlyTopicOpen(Powerless):
    """The context of a request whose client has all rights on groups and on the topic `open`."""

    def authorize(self, _operation, kind, name, **_):
        return kind is ResourceType.GROUP or (kind is ResourceType.TOPIC and name == "open")


@pytest.mark.parametrize(
    "request_of_topic",
    [
        AlterShareGroupOffsetsRequest("g", [AlteredTopic("open", [AlteredPartition(0, 0)])]),
        DeleteShareGroupOffsetsRequest("g", [DeletedTopic("open")]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_offsets_of_a_share_group_may_be_changed_with_rights_on_the_topic(request_of_topic):
    context = OnlyTopicOpen(request_of_topic.API_KEY, 0)
    assert authorize(request_of_topic, context, Cluster()).message is request_of_topic


@pytest.mark.parametrize(
    ("version", "replica"),
    [(11, {"replica_id": 2}), (15, {"replica_state": ReplicaState(2, 7)}), (15, {"replica_state": ReplicaState(0)})],
)
def test_a_client_with_read_rights_may_not_fetch_as_a_follower(version, replica):
    """A follower would get records that are not committed, and its fetches would move the high watermark."""
    topics = [FetchTopic("open", partitions=[FetchPartition(0)])]
    as_consumer = authorize(FetchRequest(topics=topics), AllTopicsButOne(ApiKey.FETCH, version), Cluster())
    assert as_consumer.message.topics == topics
    with pytest.raises(KafkaError) as raised:
        authorize(FetchRequest(topics=topics, **replica), AllTopicsButOne(ApiKey.FETCH, version), Cluster())
    assert raised.value.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class AllButDescribing(Powerless):
    """The context of a request whose client may delete all topics, and describe all topics but `hidden`."""

    may_delete_of_cluster = False

    def authorize(self, operation, kind, name, **_):
        if kind is ResourceType.CLUSTER:
            return self.may_delete_of_cluster and operation is AclOperation.DELETE
        return operation is AclOperation.DELETE or name != "hidden"


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("may_delete_of_cluster", [False, True])
def test_a_topic_that_may_not_be_described_may_not_be_deleted(version, may_delete_of_cluster):
    """The right DELETE on the cluster replaces both rights on topics, as in Kafka."""
    names = ["open", "hidden"]
    by_name = DeleteTopicsRequest(topic_names=names)
    request = by_name if version < 6 else DeleteTopicsRequest([DeleteTopicState(name) for name in names])
    context = AllButDescribing(request.API_KEY, version)
    context.may_delete_of_cluster = may_delete_of_cluster
    forwarded = authorize(request, context, Cluster()).message
    asked = forwarded.topic_names if version < 6 else [each.name for each in forwarded.topics]
    assert asked == (names if may_delete_of_cluster else ["open"])


# Responses of these APIs name only topics of the request, and the authorizer has decided on each of them.
NAMED_BY_THE_REQUEST = {
    "AddPartitionsToTxn", "AlterPartitionReassignments", "AlterReplicaLogDirs", "AlterShareGroupOffsets",
    "AssignReplicasToDirs", "CreatePartitions", "CreateTopics", "DeleteRecords", "DeleteShareGroupOffsets",
    "DeleteTopics", "DescribeProducers", "Fetch", "ListOffsets", "OffsetCommit", "OffsetDelete",
    "OffsetForLeaderEpoch", "Produce", "TxnOffsetCommit", "WriteTxnMarkers",
}  # fmt: skip
# Needs a right on the cluster, which shows all topics: as in Kafka, or because there is no rule for the API.
OF_THE_CLUSTER = {
    "DescribeLogDirs", "DescribeQuorum", "ElectLeaders", "ListPartitionReassignments", "StreamsGroupDescribe",
    "StreamsGroupHeartbeat",
}  # fmt: skip


class WithoutTopics(Powerless):
    """The context of a request whose client has all rights, except on topics."""

    def authorize(self, _operation, kind, _name, **_):
        return kind is not ResourceType.TOPIC

    authorize_by_resource_type = authorize


def with_topics(kind):
    """Return a message with one element in each list, and a value in each field with a topic's name or id."""
    module = inspect.getmodule(kind)
    made = kind()
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name == "self" or parameter.annotation == "Any":
            continue
        inner = parameter.annotation.removesuffix(" | None").removeprefix("list[").removesuffix("]")
        if name in ("topic", "topic_name") or (name == "name" and "Topic" in kind.__name__):
            setattr(made, name, SECRET)
        elif name == "topic_id":
            made.topic_id = SECRET_ID
        elif "topic_names" in name:
            setattr(made, name, [SECRET])
        elif isinstance(getattr(module, inner, None), type):
            element = with_topics(getattr(module, inner))
            setattr(made, name, [element] if parameter.annotation.startswith("list[") else element)
    return made


@pytest.mark.parametrize(("spec", "version"), list(every_version()))
def test_responses_hide_topics_that_the_client_may_not_describe(spec, version):
    """The gateway hides topics in responses if the request does not name them."""
    module = load(spec.api_key)
    request = vars(module)[f"{spec.name}Request"]()
    response = with_topics(vars(module)[f"{spec.name}Response"])
    names_topics = SECRET.encode() in encoded(response, version)
    if spec.name in NAMED_BY_THE_REQUEST | OF_THE_CLUSTER:
        return
    for field in ("group_ids", "transactional_ids"):
        if hasattr(request, field):
            setattr(request, field, ["g"])
    of_all_topics = {"DescribeShareGroupOffsets": OffsetsOfGroup, "OffsetFetch": OffsetFetchRequestGroup}
    if spec.name in of_all_topics:
        request.groups = [of_all_topics[spec.name]("g", topics=None)]
    try:
        verdict = authorize(request, WithoutTopics(spec.api_key, version), Cluster())
    except KafkaError:
        return
    if not isinstance(verdict, LocalAnswer) and names_topics:
        assert verdict.change is not None
        try:
            shown = verdict.change(response)
        except KafkaError:
            return
        assert SECRET.encode() not in shown.encode(version)


def test_each_rule_belongs_to_a_forwarded_api():
    assert set(RULES) <= {spec.api_key for spec, _versions in forwarded_apis()}


# ---- what is allowed in part


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
