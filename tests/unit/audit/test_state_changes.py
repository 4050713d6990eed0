"""Tests of the events of state changes, by API and with all settings."""

import copy
import json
import re

import jsonschema
import pytest

from klamm import ErrorCode, RequestOutcome
from klamm.wire.api_keys import ApiKey, spec_of
from klamm.wire.messages import (
    add_partitions_to_txn,
    add_raft_voter,
    alter_configs,
    create_topics,
    heartbeat,
    metadata,
    offset_commit,
    unregister_broker,
)
from klamm_spark.events.event import json_schema
from klamm_spark.observer.encoder import MAX_EVENT_BYTES
from klamm_spark.requests.resources import TopicNames
from klamm_spark.requests.state_changes import STATE_CHANGES, described
from klamm_spark.spool.layout import stream_mark
from tests.unit.audit.changes import CASES, SECRET
from tests.unit.audit.observing import ping

K = ApiKey


def attributes(resource):
    return {(name, operation): value for name, value, operation in resource.attributes or ()}


def seen(resources):
    return [(one.type, one.name, attributes(one)) for one in resources]


BETWEEN_SERVERS = {
    key for key, change in STATE_CHANGES.items() if change.types in (("BROKER",), ("VOTER",), ("CLUSTER",))
}
SHARE_STATE = {K.INITIALIZE_SHARE_GROUP_STATE, K.WRITE_SHARE_GROUP_STATE, K.DELETE_SHARE_GROUP_STATE}


def test_a_topic_has_no_id_if_the_response_has_none():
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 1, 1)])
    response = create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("t", num_partitions=1)])
    (topic,) = described(K.CREATE_TOPICS, request, response, TopicNames())
    assert ("topic_id", None) not in attributes(topic)


def test_events_name_servers_by_their_numbers_and_the_cluster_by_its_name():
    names = TopicNames()
    asked = [
        (K.UNREGISTER_BROKER, unregister_broker.UnregisterBrokerRequest(0)),
        (K.ADD_RAFT_VOTER, add_raft_voter.AddRaftVoterRequest(voter_id=1)),
        (K.VOTE, object()),
    ]
    assert [seen(described(api_key, request, None, names)) for api_key, request in asked] == [
        [("BROKER", "0", {})],
        [("VOTER", "1", {})],
        [("CLUSTER", "kafka-cluster", {})],
    ]


def test_the_cases_contain_every_change_that_a_client_can_request():
    assert CASES.keys() == STATE_CHANGES.keys() - BETWEEN_SERVERS - SHARE_STATE


@pytest.mark.parametrize("api_key", CASES, ids=lambda key: key.name)
def test_an_event_has_the_changed_attributes(audit, api_key):
    request, response, expected = CASES[api_key]
    assert seen(described(api_key, request, response, TopicNames())) == expected
    version = spec_of(api_key).max_version
    audit.complete(audit.request(audit.connection(), request, response, version=version))
    (event,) = audit.requests()
    written = [
        (
            one["type"],
            one["name"],
            {(each["name"], each.get("operation")): each.get("value") for each in one.get("attributes", ())},
        )
        for one in event["resources"]
    ]
    assert written == expected
    assert stream_mark(event["boot"]) == "a"
    assert SECRET.decode() not in json.dumps(event)


@pytest.mark.parametrize("api_key", [K.OFFSET_COMMIT, K.TXN_OFFSET_COMMIT], ids=lambda key: key.name)
def test_events_of_committed_offsets_name_a_topic_that_the_request_names_by_id(api_key):
    topics, topic_id = TopicNames(), bytes(range(16))
    topics.learn([metadata.MetadataResponseTopic(0, "orders", topic_id)])
    request = copy.deepcopy(CASES[api_key][0])
    for topic in request.topics:
        topic.name, topic.topic_id = "", topic_id
    named = [each for each in described(api_key, request, None, topics) if each.type == "TOPIC"]
    assert {each.name for each in named} == {"orders"}


def general(name):
    """Return an attribute's name as the table has it."""
    if re.fullmatch(r"(offset|replicas)\.\d+", name):
        return re.sub(r"\d+", "N", name)
    return re.sub(r"^(config|quota)\..*", r"\1.KEY", name)


@pytest.mark.parametrize("api_key", CASES, ids=lambda key: key.name)
def test_changes_have_exactly_the_attributes_and_types_of_the_table(api_key):
    request, response, _ = CASES[api_key]
    resources = described(api_key, request, response, TopicNames())
    names = {general(name) for one in resources for name, _, _ in one.attributes or ()}
    assert names == set(STATE_CHANGES[api_key].attributes)
    assert {one.type for one in resources} <= set(STATE_CHANGES[api_key].types)


@pytest.mark.parametrize("api_key", CASES, ids=lambda key: key.name)
def test_an_intent_is_recorded_without_an_answer(api_key):
    request, _, _ = CASES[api_key]
    assert described(api_key, request, None, TopicNames())


def test_the_event_of_an_old_version_names_the_transaction():
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic("t", [0, 1])],
    )
    assert seen(described(request.API_KEY, request, None, TopicNames())) == [
        ("TRANSACTIONAL_ID", "x", {("producer_id", None): "7", ("producer_epoch", None): "1"}),
        ("TOPIC", "t", {("partitions", None): "0-1"}),
    ]


# ---- with all settings


def creation(audit, connection, names=("t",), code=0, **options):
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, 1, 1) for name in names])
    results = [create_topics.CreatableTopicResult(name, error_code=code) for name in names]
    return audit.request(connection, request, create_topics.CreateTopicsResponse(topics=results), version=5, **options)


@pytest.mark.parametrize(
    "settings",
    [
        {"exclude_client_ids": ("client",)},
        {"exclude_principals": ("User:alice",)},
        {"exclude_networks": ("10.0.0.0/8",)},
        {"apis": {"CreateTopics": "off"}},
        {"principals": {"User:alice": "off"}},
        {"level": "off"},
        {"level": "metadata"},
        {"max_resources": 1},
        {"aggregate_above_per_second": 0},
    ],
    ids=str,
)
def test_no_setting_hides_a_change(make, settings):
    audit = make(**settings)
    connection = audit.connection()
    audit.complete(*(creation(audit, connection, ("a", "b", f"c-{number}")) for number in range(30)))
    audit.clock.advance_ms(2000)
    events = [event for event in audit.requests() if event["api_name"] == "CreateTopics"]
    assert len(events) == 30
    assert all("repeat_count" not in event for event in events)
    assert [one["name"] for one in events[7]["resources"]] == ["a", "b", "c-7"]


def test_commits_of_different_groups_are_not_added_up(audit):
    connection = audit.connection()
    names = [*["own"] * 40, "other's", *["own"] * 40]
    requests = [offset_commit.OffsetCommitRequest(name) for name in names]
    answer = offset_commit.OffsetCommitResponse()
    audit.complete(*(audit.request(connection, request, answer, version=8) for request in requests))
    audit.clock.advance_ms(2000)
    assert [event["resources"][0]["name"] for event in audit.requests()] == names


@pytest.mark.parametrize("denied", [False, True])
def test_many_names_are_divided_among_events_and_all_are_kept(audit, denied):
    names = [f"topic-{number}-{'x' * 200}" for number in range(1000)]
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if denied else 0
    audit.complete(creation(audit, audit.connection(), names, code))
    events = audit.requests()
    assert [event["part"] for event in events] == list(range(1, len(events) + 1))
    assert {event["parts"] for event in events} == {len(events)}
    assert [event.get("repeat_count", 1) for event in events] == [1, *[0] * (len(events) - 1)]
    assert ["request_bytes" in event for event in events] == [True, *[False] * (len(events) - 1)]
    assert [
        e.message for event in events for e in jsonschema.Draft202012Validator(json_schema()).iter_errors(event)
    ] == []
    assert len(events) > 3
    assert [one["name"] for event in events for one in event["resources"]] == names
    assert {event["outcome"] for event in events} == {"denied" if denied else "ok"}
    streams = (audit.sink.security if denied else audit.sink.administration).spool.path
    assert max(map(len, next(streams.glob("*.open")).read_bytes().splitlines())) <= MAX_EVENT_BYTES


def test_a_resource_with_many_attributes_is_divided_among_events(audit):
    configs = [alter_configs.AlterableConfig(f"key-{number}", "v" * 250) for number in range(1000)]
    request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(2, "t", configs)])
    audit.complete(audit.request(audit.connection(), request, alter_configs.AlterConfigsResponse(), version=2))
    events = audit.requests()
    kept = [each["name"] for event in events for one in event["resources"] for each in one["attributes"]]
    assert kept == [f"config.{config.name}" for config in configs]
    path = next(audit.sink.administration.spool.path.glob("*.open"))
    assert max(map(len, path.read_bytes().splitlines())) <= MAX_EVENT_BYTES


def test_a_secret_is_neither_in_old_nor_in_new_values(audit):
    """The handler records values of secret configs.

    They are hidden by the name of the config, like those of the request.
    """
    configs = [alter_configs.AlterableConfig("ssl.key.password", "new-sesame")]
    request = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(4, "1", configs)])
    event = audit.request(audit.connection(), request, alter_configs.AlterConfigsResponse(), version=2)
    event.context.note_change("BROKER", "1", "ssl.key.password", "old-sesame", "new-sesame")
    event.context.note_change("BROKER", "1", "sasl.jaas.config", "gone-sesame", None)
    event.context.note_change("BROKER", "2", "retention.ms", "of another broker", None)
    audit.complete(event)
    (event,) = audit.requests()
    hidden = "(sensitive)"
    assert event["resources"][0]["attributes"] == [
        {
            "name": "config.ssl.key.password",
            "operation": "SET",
            "value": hidden,
            "old_value": hidden,
            "new_value": hidden,
        },
        {"name": "config.sasl.jaas.config", "operation": "DELETE", "old_value": hidden},
    ]
    assert "another" not in json.dumps(event)


def test_the_event_of_a_denied_read_has_all_names(audit):
    names = [f"t-{number}" for number in range(100)]
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names])
    answer = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(29, name) for name in names])
    audit.complete(audit.request(audit.connection(), request, answer, version=12))
    (event,) = audit.requests()
    assert [one["name"] for one in event["resources"]] == names
    assert stream_mark(event["boot"]) == "s"


def test_a_request_that_cannot_be_described_is_recorded_without_resources(audit, caplog):
    """A plugin may have its own messages."""
    request = heartbeat.HeartbeatRequest("g")
    event = audit.request(audit.connection(), request, heartbeat.HeartbeatResponse())
    event.context.api_key = int(K.CREATE_TOPICS)
    audit.complete(event)
    (event,) = audit.requests()
    assert (event["api_name"], "resources" in event) == ("CreateTopics", False)
    assert "cannot be described" in caplog.text


@pytest.mark.parametrize(
    ("options", "stream"),
    [
        ({}, "a"),
        ({"outcome": RequestOutcome.LOST_DURING}, "a"),
        ({"outcome": RequestOutcome.LOST_AFTER}, "a"),
        ({"code": 36}, "a"),
        ({"outcome": RequestOutcome.REFUSED}, "s"),
        ({"outcome": RequestOutcome.LOST_BEFORE}, "s"),
        ({"outcome": RequestOutcome.FAILED}, "s"),
        ({"code": 29}, "s"),
        ({"code": 29, "decisions": [("CREATE", "TOPIC", "t", False)]}, "s"),
        # Something was executed.
        ({"code": 29, "decisions": [("CREATE", "TOPIC", "t", False), ("CREATE", "TOPIC", "u", True)]}, "a"),
    ],
    ids=str,
)
def test_executed_and_unexecuted_changes_are_distinguished(audit, options, stream):
    audit.complete(creation(audit, audit.connection(), **options))
    (event,) = audit.requests()
    assert stream_mark(event["boot"]) == stream


def test_strings_of_clients_are_cut_and_stay_distinct(audit):
    connection = audit.connection()
    connection.client_software_name = "s" * 1000
    connection.attempted_principal = "User:" + "u" * 10_000
    audit.observer.authentication_failed(connection, "r" * 100_000, False)
    for last in "ab":
        audit.complete(creation(audit, connection, ["n" * 1000 + last], client_id="i" * 1000 + last))
    audit.complete(ping(audit, connection, client_id="\x01" * 1000))
    events = audit.events()
    (failure,) = (event for event in events if event["kind"] == "authentication")
    texts = [value for event in events for value in event.values() if isinstance(value, str)]
    texts += [one["name"] for event in events for one in event.get("resources", ())]
    assert max(len(text) for text in texts if not text.startswith("r")) <= 256
    assert len(failure["reason"]) < 1100
    assert failure["attempted_principal"].startswith("User:uuu")
    first, second = (event for event in events if event.get("api_name") == "CreateTopics")
    assert first["client_id"] != second["client_id"]
    assert first["resources"][0]["name"] != second["resources"][0]["name"]
