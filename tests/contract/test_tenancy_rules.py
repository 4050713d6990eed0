"""Tests of rules of `topic_prefix`: groups without a name, ACLs, principals, sessions, pages of lists, and settings."""

import pytest

from klamm.testing import RawClient
from klamm.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from klamm.wire.messages.create_acls import AclCreation, CreateAclsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from klamm.wire.messages.describe_acls import DescribeAclsRequest
from klamm.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from klamm.wire.messages.elect_leaders import ElectLeadersRequest
from klamm.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.incremental_alter_configs import AlterableConfig as Change
from klamm.wire.messages.incremental_alter_configs import AlterConfigsResource as Changes
from klamm.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_fetch import OffsetFetchRequest
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.contract.filtered import refusals, served
from tests.contract.tenants import batch

INVALID_GROUP_ID = 24
INCONSISTENT_GROUP_PROTOCOL = 23
GROUP_CONFIG = 32
FETCH_SESSION_ID_NOT_FOUND = 70
CLUSTER_AUTHORIZATION_FAILED = 31
ANY, TOPIC, CLUSTER = 1, 2, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALLOW, READ = 3, 3


def door(name, *settings):
    return [
        f"listeners.{name}.bind=127.0.0.1:0",
        f'listeners.{name}.filters=["topic_prefix"]',
        *(f"listeners.{name}.{one}" for one in settings),
    ]


@pytest.fixture(scope="module")
def clients():
    """Yield clients of a listener without the filter and of both tenants. Each client has all rights."""
    acl = ("authorizer=acl", 'acl.super_users=["User:ANONYMOUS"]')
    settings = [f"listeners.default.{one}" for one in acl]
    for name in ("a", "b"):
        settings += door(name, f"topic_prefix.prefix=t-{name}.", *acl)
    with served("broker", settings) as (_broker, front):
        made = {name: RawClient(front.address(name)) for name in ("default", "a", "b")}
        yield made["default"], made["a"], made["b"]
        for client in made.values():
            client.close()


def create(client, *names, partitions=1):
    answer = client.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1) for name in names]), 7)
    assert {one.error_code for one in answer.topics} == {0}


def test_requests_with_an_empty_group_id_are_refused(clients):
    _plain, a, _b = clients
    partitions = [OffsetCommitRequestPartition(0, 1, -1, "")]
    commit = OffsetCommitRequest("", -1, "", None, -1, [OffsetCommitRequestTopic("t", partitions=partitions)])
    assert a.call(commit, 8).topics[0].partitions[0].error_code == INVALID_GROUP_ID
    assert a.call(OffsetFetchRequest("", None), 5).error_code == INVALID_GROUP_ID
    assert a.call(FindCoordinatorRequest(""), 3).error_code == INVALID_GROUP_ID
    (found,) = a.call(FindCoordinatorRequest(coordinator_keys=[""]), 4).coordinators
    assert found.error_code == INVALID_GROUP_ID


def test_a_tenant_cannot_elect_leaders_of_all_topics(clients):
    assert clients[1].call(ElectLeadersRequest(0, None), 2).error_code == CLUSTER_AUTHORIZATION_FAILED


def test_topics_can_be_listed_in_pages(clients):
    _plain, a, b = clients
    create(a, "paged-1", "paged-2", partitions=2)
    create(b, "paged-1", "paged-2", "paged-3", partitions=2)
    pages, cursor = [], None
    while True:
        page = b.call(DescribeTopicPartitionsRequest([], 2, cursor), 0)
        pages.append([one.name for one in page.topics])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == [["paged-1"], ["paged-2"], ["paged-3"]]
    (named,) = a.call(DescribeTopicPartitionsRequest([TopicRequest("paged-2")]), 0).topics
    assert (named.name, named.error_code, len(named.partitions)) == ("paged-2", 0, 2)


@pytest.mark.parametrize("kind", ["join", "sync", "sync without the type"])
def test_consumers_cannot_hide_topic_names_in_bytes_that_are_no_text(clients, kind):
    """Kafka takes any bytes for text.

    Here it would subscribe the group to both topics, and assign the other tenant's topic.
    """
    _plain, a, _b = clients
    names = b"\0\0\0\2\0\14t-b.orders\xff\0" + b"\0\6orders"
    if kind == "join":
        protocols = [JoinGroupRequestProtocol("range", b"\0\0" + names + b"\xff\xff\xff\xff")]
        answer = a.call(JoinGroupRequest("hidden", 10_000, 10_000, "", None, "consumer", protocols), 5)
    else:
        assignments = [SyncGroupRequestAssignment("m", b"\0\0" + names)]
        version, types = (5, ("consumer", "range")) if kind == "sync" else (4, (None, None))
        answer = a.call(SyncGroupRequest("hidden", 1, "m", None, *types, assignments), version)
    assert answer.error_code == INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("request_class", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
def test_a_tenant_cannot_configure_a_dead_letter_topic(clients, request_class):
    """Kafka would write to the topic with this name, even if another tenant owns the topic."""
    _plain, a, _b = clients
    ways = {
        AlterConfigsRequest: (AlterConfigsResource, AlterableConfig),
        IncrementalAlterConfigsRequest: (Changes, Change),
    }
    resource, config = ways[request_class]
    name = "errors.deadletterqueue.topic.name"
    change = config(name, "t-b.orders") if config is AlterableConfig else config(name, 0, "t-b.orders")
    (answer,) = a.call(request_class([resource(GROUP_CONFIG, "shared", [change])]), 1).responses
    assert answer.error_code == CLUSTER_AUTHORIZATION_FAILED


# ---- ACLs


def fetch_request(topics=(), session_id=0, session_epoch=0):
    wanted = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(0)]) for topic_id in topics]
    return FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=session_epoch, topics=wanted)


@pytest.fixture
def fetching(clients):
    """Yield the id of a session of tenant `a`, which fetches a topic from its end. The topic then gets a record."""
    _plain, a, b = clients
    if not a.call(MetadataRequest([MetadataRequestTopic(name="fetched")], False), 12).topics[0].partitions:
        create(a, "fetched")
    (topic,) = a.call(MetadataRequest([MetadataRequestTopic(name="fetched")]), 12).topics
    session_id = a.call(fetch_request([topic.topic_id]), 13).session_id
    assert session_id
    data = [TopicProduceData("fetched", partition_data=[PartitionProduceData(0, batch(b"value-of-a"))])]
    produced = a.call(ProduceRequest(acks=1, timeout_ms=5000, topic_data=data), 9)
    assert not produced.responses[0].partition_responses[0].error_code
    yield session_id
    # Tenant `b` may already have ended the session.
    a.call(fetch_request(session_id=session_id, session_epoch=-1), 13)


def test_a_tenant_gets_no_records_from_a_session_of_another_tenant(clients, fetching):
    """The id of a session has only 31 bits, and errors of a broker reveal which ids exist."""
    _plain, a, b = clients
    guessed = b.call(fetch_request(session_id=fetching, session_epoch=1), 13)
    assert (guessed.error_code, guessed.responses) == (FETCH_SESSION_ID_NOT_FOUND, [])
    assert b.call(fetch_request(session_id=fetching, session_epoch=7), 13).error_code == FETCH_SESSION_ID_NOT_FOUND
    own = a.call(fetch_request(session_id=fetching, session_epoch=1), 13)
    assert own.responses[0].partitions[0].records


@pytest.mark.parametrize("epoch", [0, -1], ids=["a new session", "the end"])
def test_a_tenant_cannot_end_a_session_of_another_tenant(clients, fetching, epoch):
    _plain, a, b = clients
    b.call(fetch_request(session_id=fetching, session_epoch=epoch), 13)
    assert a.call(fetch_request(session_id=fetching, session_epoch=1), 13).error_code == 0


def test_a_tenant_can_continue_and_end_its_own_session(clients):
    _plain, a, _b = clients
    first = a.call(fetch_request([bytes(15) + b"1"]), 13).session_id
    assert a.call(fetch_request(session_id=first, session_epoch=1), 13).error_code == 0
    assert a.call(fetch_request(session_id=first, session_epoch=2), 13).session_id == first
    second = a.call(fetch_request([bytes(15) + b"1"], session_id=first), 13).session_id
    assert second not in (0, first)
    assert a.call(fetch_request(session_id=first, session_epoch=3), 13).error_code == FETCH_SESSION_ID_NOT_FOUND
    assert a.call(fetch_request(session_id=second, session_epoch=-1), 13).error_code == 0
    assert a.call(fetch_request(session_id=second, session_epoch=1), 13).error_code == FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("version", "replica"), [(12, {"replica_id": 1}), (15, {"replica_state": ReplicaState(1)})])
def test_a_tenant_may_not_fetch_as_a_follower(clients, version, replica):
    _plain, a, _b = clients
    answer = a.call(FetchRequest(max_wait_ms=0, **replica), version)
    assert answer.error_code == CLUSTER_AUTHORIZATION_FAILED


def rule(name, pattern_type=LITERAL, resource_type=TOPIC):
    return AclCreation(resource_type, name, pattern_type, "User:x", "*", READ, ALLOW)


def rules_of(client, resource_type=ANY, name=None, pattern_type=1):
    answer = client.call(DescribeAclsRequest(resource_type, name, pattern_type, None, None, 1, 1), 3)
    assert answer.error_code == 0, answer
    return sorted((one.resource_name, one.pattern_type) for one in answer.resources)


def delete(client, resource_type, name, pattern_type):
    answer = client.call(DeleteAclsRequest([DeleteAclsFilter(resource_type, name, pattern_type, None, None, 1, 1)]), 3)
    (result,) = answer.filter_results
    return result.error_code, sorted((one.resource_name, one.pattern_type) for one in result.matching_acls)


def test_a_tenant_sees_and_changes_acls_of_its_own_resources_only(clients):
    plain, a, b = clients
    assert plain.call(CreateAclsRequest([rule("*"), rule("t-", PREFIXED)]), 3).results[0].error_code == 0
    for client in (a, b):
        created = client.call(CreateAclsRequest([rule("orders"), rule("or", PREFIXED), rule("*")]), 3)
        assert [one.error_code for one in created.results] == [0, 0, 0]
    own = [("*", LITERAL), ("or", PREFIXED), ("orders", LITERAL)]
    at_the_broker = sorted(
        [("*", LITERAL), ("t-", PREFIXED)]
        + [(f"t-{name}.{one}", kind) for name in "ab" for one, kind in (("", 4), ("or", 4), ("orders", 3))]
    )
    assert rules_of(plain) == at_the_broker
    assert rules_of(a) == rules_of(b) == own
    assert rules_of(a, TOPIC, "orders", MATCH) == own
    assert rules_of(a, TOPIC, "*", LITERAL) == [("*", LITERAL)]
    for wrong in ((ANY, "orders", LITERAL), (TOPIC, None, LITERAL), (TOPIC, "orders", MATCH), (TOPIC, "x", ANY)):
        assert delete(a, *wrong) == (CLUSTER_AUTHORIZATION_FAILED, []), wrong
    assert delete(a, CLUSTER, "kafka-cluster", LITERAL)[0] == CLUSTER_AUTHORIZATION_FAILED
    assert rules_of(plain) == at_the_broker
    assert delete(a, TOPIC, "*", LITERAL) == (0, [("*", LITERAL)])
    assert delete(a, TOPIC, "or", PREFIXED) == (0, [("or", PREFIXED)])
    assert rules_of(b) == own
    assert ("*", LITERAL) in rules_of(plain)
    for wrong_rule in (rule("kafka-cluster", resource_type=CLUSTER), rule("", PREFIXED), rule("x", MATCH)):
        (result,) = a.call(CreateAclsRequest([wrong_rule]), 3).results
        assert result.error_code == CLUSTER_AUTHORIZATION_FAILED


# ---- principals and settings


def test_a_principal_without_a_prefix_is_refused():
    with served("broker", door("a", "topic_prefix.prefix={principal}-")) as (_broker, front):
        with RawClient(front.address("a")) as client:
            assert client.call(ListGroupsRequest(), 4).error_code == CLUSTER_AUTHORIZATION_FAILED
            assert client.call(MetadataRequest(None), 12).brokers == []
        assert refusals(front) == {"topic_prefix": 2}


def test_a_principal_in_the_settings_gets_its_own_prefix():
    settings = door("a", 'topic_prefix.principals={"User:ANONYMOUS" = "anon."}')
    with served("broker", settings) as (broker, front), RawClient(front.address("a")) as client:
        create(client, "orders")
        assert set(broker.admin.topics()) == {"anon.orders"}
        assert [one.name for one in client.call(MetadataRequest(None), 12).topics] == ["orders"]


def test_topic_ids_depend_on_the_prefix_and_the_secret(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"1" * 32)
    secret.chmod(0o600)
    own = f"topic_prefix.topic_id_secret_file={secret}"
    settings = door("a", "topic_prefix.prefix=a.", own) + door("same", "topic_prefix.prefix=a.", own)
    with served("broker", settings + door("without", "topic_prefix.prefix=a.")) as (broker, front):
        broker.admin.create_topic("a.orders")
        ids = {}
        for name in ("default", "a", "same", "without"):
            with RawClient(front.address(name)) as client:
                (topic,) = client.call(MetadataRequest(None), 12).topics
                ids[name] = topic.topic_id
    assert ids["a"] == ids["same"]
    assert len(set(ids.values())) == 3
