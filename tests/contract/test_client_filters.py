"""Tests of the filters `deny_apis`, `client_limits` and `rewrite_client_id`, before a broker and before a gateway."""

import pytest

import klamm_filters
from klamm.config.problems import ConfigError
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.heartbeat import HeartbeatRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.metadata import VERSIONS, MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.records import Record, encode_batch
from klamm_filters.filter_settings import DenyApisSettings
from tests.contract.filtered import API_SETS, refusals, served
from tests.waiting import wait_until

UNKNOWN_TOPIC_OR_PARTITION = 3
POLICY_VIOLATION = 44
BATCH = bytes(encode_batch([Record(timestamp_ms=1, value=b"v")]))

on_both = pytest.mark.parametrize("api_set", API_SETS)


def with_filter(name, *settings):
    return [f'listeners.default.filters=["{name}"]', *(f"listeners.default.{name}.{one}" for one in settings)]


def connect(server, **options):
    return RawClient(server.address(), **options)


def produce(client, topic, acks=1):
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, BATCH)])]
    return client.send(ProduceRequest(None, acks, 1000, data), 9)


# ---- deny_apis


@on_both
def test_deny_apis_refuses_only_the_denied_apis(api_set):
    settings = with_filter("deny_apis", 'deny=["CreateTopics", "*Groups"]')
    with served(api_set, settings) as (broker, front), connect(front) as client:
        (topic,) = client.call(CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 7).topics
        assert (topic.error_code, topic.error_message) == (POLICY_VIOLATION, "CreateTopics is denied by this listener.")
        assert client.call(ListGroupsRequest(), 4).error_code == POLICY_VIOLATION
        assert client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code == 0
        assert "new" not in {topic.name for topic in client.call(MetadataRequest(None), 9).topics}
        assert refusals(front) == {"deny_apis": 2}


@on_both
@pytest.mark.parametrize("denied", ['deny=["Create*"]', 'allow=["Metadata"]'])
def test_where_creation_is_denied_metadata_creates_no_topic(api_set, denied):
    """In each version Metadata describes existing topics, creates no missing one, and can list all topics."""
    settings = [*with_filter("deny_apis", denied, 'except_principals=["User:x"]')]
    with served(api_set, ["listeners.plain.bind=127.0.0.1:0", *settings] if api_set == "broker" else settings) as (
        broker,
        front,
    ):
        door = broker.address("plain" if api_set == "broker" else None)
        with RawClient(door) as direct, connect(front) as client:
            assert direct.call(CreateTopicsRequest([CreatableTopic("there", 1, 1)]), 7).topics[0].error_code == 0
            for version in VERSIONS:
                wanted = [MetadataRequestTopic(name=name) for name in (f"made-{version}", "there", "there")]
                topics = client.call(MetadataRequest(wanted), version).topics
                assert {one.name: (one.error_code, len(one.partitions)) for one in topics} == {
                    f"made-{version}": (UNKNOWN_TOPIC_OR_PARTITION, 0),
                    "there": (0, 1),
                }
                of_all = client.call(MetadataRequest(None if version else []), version).topics
                assert [one.name for one in of_all] == ["there"]
            # A broker creates a topic soon after the answer. So once this later topic exists, earlier ones would exist
            # too.
            wait_until(lambda: creates(direct, "by-another"))
            assert {one.name for one in direct.call(MetadataRequest(None), 9).topics} == {"there", "by-another"}


def creates(client, name):
    (topic,) = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), 9).topics
    return not topic.error_code


@on_both
def test_deny_apis_with_a_list_of_allowed_apis_refuses_all_others(api_set):
    settings = with_filter(
        "deny_apis", 'allow=["Metadata", "DescribeGroups"]', 'deny=["Describe*"]', "error=UNKNOWN_SERVER_ERROR"
    )
    with served(api_set, settings) as (_broker, front), connect(front) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0
        assert client.call(MetadataRequest(None), 9).brokers
        assert client.call(HeartbeatRequest("g", 0, "m"), 4).error_code == -1
        (group,) = client.call(DescribeGroupsRequest(["g"]), 5).groups
        assert group.error_code == -1, "what is denied is not allowed"


def test_a_denied_produce_that_wants_no_response_closes_the_connection():
    settings = with_filter("deny_apis", 'deny=["Produce"]')
    with served("broker", settings) as (broker, front), connect(front) as client:
        broker.admin.create_topic("t")
        produce(client, "t", acks=0)
        assert client.at_end()
        assert broker.admin.offset("t") == 0


def test_deny_apis_exempts_the_principals_of_its_settings():
    settings = with_filter("deny_apis", 'deny=["ListGroups"]', 'except_principals=["User:ANONYMOUS"]')
    with served("broker", settings) as (_broker, front), connect(front) as client:
        assert client.call(ListGroupsRequest(), 4).error_code == 0


# ---- client_limits


def named(client, software, version):
    assert client.call(ApiVersionsRequest(software, version), 3).error_code == 0


@on_both
def test_client_limits_refuses_other_software_and_older_versions(api_set):
    settings = with_filter(
        "client_limits", 'software=["apache-*", "librd*"]', 'min_software_versions={"apache-kafka-java" = "3.7"}'
    )
    with served(api_set, settings) as (_broker, front), connect(front) as client:
        for software, version, served_it in (
            ("apache-kafka-java", "3.7.0", True),
            ("apache-kafka-java", "3.10", True),
            ("apache-kafka-java", "4", True),
            ("apache-kafka-java", "3.6.9", False),
            ("apache-kafka-java", "x3.9", False),
            ("librdkafka", "0.1", True),
            ("franz-go", "9", False),
        ):
            named(client, software, version)
            answer = client.call(ListGroupsRequest(), 4)
            assert answer.error_code == (0 if served_it else POLICY_VIOLATION), (software, version)


def test_client_limits_refuses_a_client_without_a_software_version():
    settings = with_filter("client_limits", 'min_software_versions={"librdkafka" = "2"}')
    with served("broker", settings) as (_broker, front), connect(front) as client:
        assert client.call(ListGroupsRequest(), 4).error_code == POLICY_VIOLATION
        named(client, "librdkafka", "2.6.1")
        assert client.call(ListGroupsRequest(), 4).error_code == 0
        named(client, "librdkafka", "1.9")
        assert client.call(ListGroupsRequest(), 4).error_code == POLICY_VIOLATION, "each request is checked"


@on_both
def test_client_limits_refuses_other_client_ids_and_older_request_versions(api_set):
    settings = with_filter("client_limits", 'client_ids=["billing-*"]', "min_api_versions={Heartbeat = 3}")
    with served(api_set, settings) as (_broker, front):
        with connect(front, client_id="billing-7") as client:
            assert client.call(HeartbeatRequest("g", 0, "m"), 2).error_code == POLICY_VIOLATION
            assert client.call(HeartbeatRequest("g", 0, "m"), 3).error_code != POLICY_VIOLATION
        for client_id in ("other", None):
            with connect(front, client_id=client_id) as client:
                assert client.call(HeartbeatRequest("g", 0, "m"), 3).error_code == POLICY_VIOLATION
        assert refusals(front) == {"client_limits": 3}


def test_client_limits_can_close_the_connection_instead_of_an_error():
    settings = with_filter("client_limits", 'client_ids=["x"]', "disconnect=true", 'apis=["ListGroups"]')
    with served("broker", settings) as (_broker, front), connect(front) as client:
        assert client.call(HeartbeatRequest("g", 0, "m"), 3).error_code != POLICY_VIOLATION, "it is not checked"
        client.send(ListGroupsRequest(), 4)
        assert client.at_end()


# ---- rewrite_client_id


@on_both
def test_the_broker_sees_the_new_client_id(api_set):
    settings = with_filter("rewrite_client_id", "template={listener}/{principal}/{client_id}/{host}")
    with served(api_set, settings) as (broker, front), connect(front, client_id="c{1}") as client:
        join = JoinGroupRequest("g", 10_000, 1000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")])
        joined = client.call(join, 3)
        assert joined.error_code == 0
        (group,) = client.call(DescribeGroupsRequest(["g"]), 5).groups
        assert [member.client_id for member in group.members] == ["default/ANONYMOUS/c{1}/127.0.0.1"]
        assert joined.member_id.startswith("default/ANONYMOUS/c{1}/127.0.0.1-")


def test_a_request_is_refused_if_its_new_client_id_is_too_long():
    settings = with_filter("rewrite_client_id", "template={client_id}{client_id}")
    with served("broker", settings) as (_broker, front), connect(front, client_id="x" * 20_000) as client:
        assert client.call(ListGroupsRequest(), 4).error_code == 42
        assert refusals(front) == {"rewrite_client_id": 1}


# ---- settings


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("deny_apis", "error=X", 'there is no error "X"'),
        ("deny_apis", 'deny=["Produec"]', 'filters get no API of the name "Produec"'),
        ("deny_apis", 'deny=["ApiVersions"]', 'filters get no API of the name "ApiVersions"'),
        ("client_limits", 'min_software_versions={"x" = "new"}', '"new" is not a version'),
        ("client_limits", "min_api_versions={Heart = 3}", 'filters get no API of the name "Heart"'),
        ("rewrite_client_id", "template={user}", "{user} is not one of {client_id}, {principal}, {listener}, {host}"),
        ("rewrite_client_id", "template={client_id", "expected '}'"),
    ],
)
def test_wrong_settings_stop_the_start(name, setting, message):
    with pytest.raises(ConfigError) as raised:
        EmbeddedServer(with_filter(name, setting), plugins=[klamm_filters]).start()
    assert message in str(raised.value)


def test_deny_apis_without_apis_is_reported_as_a_problem():
    assert [message for _, message in DenyApisSettings().problems()] == ["name APIs in `deny` or in `allow`"]
    assert not list(DenyApisSettings(allow=("Produce",)).problems())


def test_refused_requests_of_a_client_are_logged_at_most_five_times_a_minute(caplog):
    settings = with_filter("client_limits", 'client_ids=["good"]')
    with served("broker", settings) as (_broker, front):
        for number in range(12):
            with connect(front, client_id=f"bad-{number}") as client:
                assert client.call(ListGroupsRequest(), 4).error_code == POLICY_VIOLATION
        assert refusals(front) == {"client_limits": 12}
        assert len([line for line in caplog.messages if "client_limits refused it" in line]) == 5
