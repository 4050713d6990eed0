"""The gateway asks its listener's authorizer about each request, whatever its API. Denied names do not reach a node."""

import inspect

import pytest

from klamm import ErrorCode, KafkaError
from klamm.acl import AclOperation, ResourceType
from klamm.wire.api_keys import ApiKey, load
from klamm.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from klamm.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestPartition as AlteredPartition
from klamm.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequestTopic as AlteredTopic
from klamm.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from klamm.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequestTopic as DeletedTopic
from klamm.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup as OffsetsOfGroup
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from klamm.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
)
from klamm.wire.primitives import WireError
from klamm.wire.records import Record, encode_batch
from klamm_gateway.authorization.checks import LocalAnswer
from klamm_gateway.authorization.rules import RULES, authorize
from klamm_gateway.forwarded_apis import forwarded_apis
from klamm_gateway.layout import Cluster

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
