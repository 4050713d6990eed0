"""Tests of the filter `faults`: each kind of fault in the bytes on the wire, matching requests, and reports."""

import contextlib
import re
import threading
import time

import pytest

from klamm import ErrorCode, KafkaError
from klamm.cli.main import main
from klamm.testing import EmbeddedServer, MovingClock, RawClient
from klamm.wire.messages import (
    consumer_group_heartbeat,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    metadata,
    produce,
    share_group_heartbeat,
)
from klamm.wire.records import Record, encode_batch, iterate_batches
from tests.waiting import is_readable

KINDS = {"error", "error_after", "delay", "slow", "disconnect", "disconnect_after", "truncate", "corrupt"}
KINDS |= {"stale_metadata", "coordinator_moved", "throttle", "partition_error", "reorder"}


@pytest.fixture(scope="module")
def shared():
    with EmbeddedServer(["listeners.other.bind=127.0.0.1:0"], faults=True, clock=MovingClock()) as server:
        yield server


@pytest.fixture
def server(shared):
    yield shared
    shared.faults.clear()


@pytest.fixture
def client(server):
    with RawClient(server.address()) as client:
        yield client


@pytest.fixture
def topic(server):
    return server.create_topic(partitions=2)


def produced(topic, partition=0, acks=-1):
    records = bytes(encode_batch([Record(value=b"value")]))
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, records)])
    return produce.ProduceRequest(None, acks, 1000, [data])


def put(client, topic, partition=0):
    """Produce a record. Return the error code."""
    return client.call(produced(topic, partition), 9).responses[0].partition_responses[0].error_code


def fetched(topic):
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1)
    request.topics = [fetch.FetchTopic(topic, partitions=[fetch.FetchPartition(0, partition_max_bytes=1 << 20)])]
    return request


def named(topic):
    return metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])


def count(server, topic):
    return len(server.consume(topic))


# ---- kinds of faults


def both(topic, acks=-1):
    request = produced(topic, 0, acks)
    request.topic_data[0].partition_data += produced(topic, 1).topic_data[0].partition_data
    return request


def partitions_of(response):
    return {
        (topic.name, one.index): one.error_code for topic in response.responses for one in topic.partition_responses
    }


def test_one_partition_of_a_produce_gets_an_error(server, client, topic):
    rule = {"topic": topic, "partition": 1, "error": "NOT_LEADER_OR_FOLLOWER"}
    fault = server.faults.add("partition_error", api="Produce", count=2, **rule)
    assert partitions_of(client.call(both(topic), 9)) == {(topic, 0): 0, (topic, 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert partitions_of(client.call(produced(topic, 1), 9)) == {(topic, 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert partitions_of(client.call(both(topic), 9)) == {(topic, 0): 0, (topic, 1): 0}
    assert sorted(record.partition for record in server.consume(topic)) == [0, 0, 1]
    assert fault.fired == 2


def test_one_partition_gets_an_error_by_topic_id(server, client, topic):
    (found,) = client.call(named(topic), 12).topics
    request = both("")
    request.topic_data[0].topic_id = found.topic_id
    server.faults.add("partition_error", topic=topic, partition=0, error="KAFKA_STORAGE_ERROR", count=1)
    answered = client.call(request, 13).responses
    codes = {one.index: one.error_code for topic in answered for one in topic.partition_responses}
    assert codes == {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: 0}
    assert {one.topic_id for one in answered} == {found.topic_id}


def test_one_partition_of_a_fetch_and_of_metadata_gets_an_error(server, client, topic):
    server.produce(topic, "a", partition=0)
    server.produce(topic, "b", partition=1)
    request = fetched(topic)
    request.topics[0].partitions.append(fetch.FetchPartition(1, partition_max_bytes=1 << 20))
    server.faults.add("partition_error", topic=topic, partition=0, error="OFFSET_NOT_AVAILABLE")
    (answered,) = client.call(request, 11).responses
    found = {one.partition_index: (one.error_code, bool(one.records)) for one in answered.partitions}
    assert found == {0: (ErrorCode.OFFSET_NOT_AVAILABLE, False), 1: (0, True)}
    (described,) = client.call(named(topic), 12).topics
    assert described.error_code == 0
    codes = {one.partition_index: one.error_code for one in described.partitions}
    assert codes == {0: ErrorCode.OFFSET_NOT_AVAILABLE, 1: 0}


def test_requests_of_two_connections_are_swapped(server, client, topic):
    fault = server.faults.add("reorder", api="Produce", topic=topic, delay_ms=10_000, count=1)
    correlation_id = client.send(produced(topic, 0), 9)
    fault.wait()
    with RawClient(server.address()) as other:
        other.call(named(topic), 12)
        assert count(server, topic) == 0
        assert put(other, topic, 1) == 0
    first = client.receive(produce.API_KEY, 9, correlation_id)
    assert partitions_of(first) == {(topic, 0): 0}
    assert count(server, topic) == 2
    assert fault.fired == 1


def test_a_request_without_one_to_swap_with_waits_for_its_time(server, client, topic):
    server.faults.add("reorder", api="Produce", topic=topic, delay_ms=150)
    started = time.monotonic()
    assert put(client, topic) == 0
    assert time.monotonic() - started >= 0.15


def test_a_rule_for_a_node_applies_to_the_node_that_metadata_names(server, client, topic):
    (broker,) = client.call(named(topic), 12).brokers
    rule = {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}
    server.faults.add("error", node=broker.node_id + 1, **rule)
    assert put(client, topic) == 0
    server.faults.add("error", node=broker.node_id, **rule)
    assert put(client, topic) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("kind", "appended"), [("error", 0), ("error_after", 1)])
def test_fault_returns_an_error_before_or_after_the_append(server, client, topic, kind, appended):
    fault = server.faults.add(kind, api="Produce", error="NOT_LEADER_OR_FOLLOWER", count=1)
    assert put(client, topic) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert count(server, topic) == appended
    assert put(client, topic) == 0
    assert fault.fired == fault.wait() == 1


@pytest.mark.parametrize(("kind", "meanwhile"), [("delay", 0), ("slow", 1)])
def test_answers_are_delayed(server, client, topic, kind, meanwhile):
    fault = server.faults.add(kind, api="Produce", delay_ms=60_000, count=1)
    correlation_id = client.send(produced(topic), 9)
    fault.wait()
    assert count(server, topic) == meanwhile
    server.advance_ms(60_000)
    client.receive(produce.API_KEY, 9, correlation_id)
    assert count(server, topic) == 1


@pytest.mark.parametrize(("kind", "appended"), [("disconnect", 0), ("disconnect_after", 1)])
def test_a_connection_is_lost_before_or_after_the_append(server, client, topic, kind, appended):
    server.faults.add(kind, api="Produce")
    with pytest.raises(ConnectionError):
        put(client, topic)
    assert count(server, topic) == appended


@pytest.mark.parametrize("version", [8, 9])
def test_an_answer_is_truncated(server, client, topic, version):
    server.faults.add("truncate", api="Produce")
    client.send(produced(topic), version)
    head = client._take(8)
    size = int.from_bytes(head[:4], "big")
    rest = b""
    with contextlib.suppress(ConnectionError):
        while True:
            rest += client._take(1)
    assert int.from_bytes(head[4:], "big") == 1
    assert len(head) + len(rest) == (4 + size) // 2
    assert count(server, topic) == 1


def test_records_are_corrupted(server, client, topic):
    server.produce(topic, "value")
    server.faults.add("corrupt", api="Fetch", count=1)
    bad, good = (client.call(fetched(topic), 11).responses[0].partitions[0].records for _ in range(2))
    assert bytes(bad[:-1]) == bytes(good[:-1])
    assert bad[-1] != good[-1]
    assert list(iterate_batches(bytes(good)))


def test_an_answer_is_corrupted(server, client):
    wanted = find_coordinator.FindCoordinatorRequest("group")
    client.call(wanted, 1)
    server.faults.add("corrupt", api="FindCoordinator", count=1)
    correlation_id = client.send(wanted, 1)
    bad = client.receive_frame()
    client.send(wanted, 1)
    good = client.receive_frame()
    assert int.from_bytes(bad[:4], "big") == correlation_id
    assert bytes(255 - byte for byte in bad[4:]) == good[4:]


def test_stale_metadata_is_returned_as_before_an_election(server, client, topic):
    server.faults.add("stale_metadata", count=1)
    (found,) = client.call(named(topic), 9).topics
    assert {(one.leader_id, one.error_code) for one in found.partitions} == {(-1, ErrorCode.LEADER_NOT_AVAILABLE)}
    (found,) = client.call(named(topic), 9).topics
    assert {one.error_code for one in found.partitions} == {0}


def test_a_coordinator_appears_to_have_moved(server, client):
    server.faults.add("coordinator_moved", group="readers")
    assert client.call(heartbeat.HeartbeatRequest("readers"), 4).error_code == ErrorCode.NOT_COORDINATOR
    assert client.call(heartbeat.HeartbeatRequest("others"), 4).error_code != ErrorCode.NOT_COORDINATOR
    assert client.call(find_coordinator.FindCoordinatorRequest("readers"), 1).error_code == 0


@pytest.mark.parametrize("module", [consumer_group_heartbeat, share_group_heartbeat])
def test_a_moved_coordinator_is_reported_to_all_kinds_of_groups(server, client, module):
    server.faults.add("coordinator_moved", group="readers")
    request = vars(module)[f"{module.NAME}Request"]("readers", "member", 1)
    assert client.call(request, 1).error_code == ErrorCode.NOT_COORDINATOR


def test_fault_throttles_a_client(server, client, topic):
    server.faults.add("throttle", api="Produce", delay_ms=60_000, count=1)
    assert client.call(produced(topic), 9).throttle_time_ms == 60_000
    correlation_id = client.send(produced(topic), 9)
    assert not is_readable(client.socket, 0.05), "the client is held back"
    server.advance_ms(60_000)
    assert client.receive(produce.API_KEY, 9, correlation_id).throttle_time_ms == 0


# ---- matching requests


@pytest.mark.parametrize(
    ("rule", "concerned"),
    [
        ({"topic": "TOPIC"}, True),
        ({"topic": "other-*"}, False),
        ({"topic": "TOPIC", "partition": 1}, True),
        ({"partition": 1}, True),
        ({"partition": 0}, False),
        ({"client": "ra*"}, True),
        ({"client": "raw2"}, False),
        ({"listener": "def*"}, True),
        ({"listener": "other"}, False),
        ({"group": "*"}, False),
        ({"api": ["Produce", "Fetch"]}, True),
        ({"api": ["Fetch"]}, False),
        ({"after": 1}, False),
        ({"probability": 0.0}, False),
        ({}, True),
    ],
)
@pytest.mark.parametrize("version", [9, 13])
def test_a_rule_applies_to_the_requests_that_match_it(server, client, topic, rule, concerned, version):
    (described,) = client.call(named(topic), 12).topics
    if "topic" in rule:
        rule = {**rule, "topic": rule["topic"].replace("TOPIC", topic)}
    server.faults.add("error", error="POLICY_VIOLATION", **rule)
    request = produced(topic, 1)
    if version >= 13:
        request.topic_data[0].name, request.topic_data[0].topic_id = "", described.topic_id
    (answer,) = client.call(request, version).responses[0].partition_responses
    assert (answer.error_code == ErrorCode.POLICY_VIOLATION) is concerned


def test_a_rule_without_apis_does_not_apply_to_api_versions_and_helpers(server, client, topic):
    fault = server.faults.add("disconnect")
    server.produce(topic, "value")
    with RawClient(server.address()) as other:
        from klamm.wire.messages.api_versions import ApiVersionsRequest

        assert other.call(ApiVersionsRequest("raw", "1"), 3).error_code == 0
    assert fault.fired == 0


def test_one_seed_gives_the_same_faults_again(server, client, topic):
    def run():
        server.faults.add("error", error="POLICY_VIOLATION", probability=0.5, name="half")
        codes = [put(client, topic) for _ in range(40)]
        server.faults.clear()
        return codes

    first = run()
    assert first == run()
    assert 5 < sum(map(bool, first)) < 35


def test_a_test_can_wait_for_a_fault_and_remove_it(server, client, topic):
    fault = server.faults.add("error", api="Produce", error="POLICY_VIOLATION")
    what = r"fault error-.*: error, api=\('Produce',\), error='POLICY_VIOLATION', fired 0 times>"
    with pytest.raises(TimeoutError, match=f"{what}: fired 0 times in 0.01 s, not 1"):
        fault.wait(timeout_s=0.01)
    timer = threading.Timer(0.02, lambda: put(client, topic))
    timer.start()
    assert fault.wait() == 1
    timer.join()
    fault.remove()
    assert put(client, topic) == 0


def test_the_error_of_a_wait_names_the_unmet_conditions(server, client, topic):
    other = server.create_topic()
    first = server.faults.add("error", api="Produce", error="POLICY_VIOLATION", topic=topic, after=1)
    put(client, topic)
    put(client, other)
    put(client, other)
    client.call(heartbeat.HeartbeatRequest("g"), 4)
    with pytest.raises(TimeoutError) as caught:
        first.wait(timeout_s=0)
    text = str(caught.value)
    assert f"2 were Produce of topic '{other}'" in text
    assert "1 came first (after = 1)" in text
    assert "1 were Heartbeat" in text


@pytest.mark.parametrize(
    ("condition", "unmet"),
    [
        ({"client": "not-me"}, "1 had the client id "),
        ({"listener": "inner"}, "1 came to the listener 'default'"),
        ({"node": 99}, "came to "),
        ({"partition": 7}, ", not partition 7"),
        ({"probability": 0.0}, "1 escaped (probability = 0)"),
    ],
)
def test_each_condition_has_a_text(server, client, topic, condition, unmet):
    fault = server.faults.add("error", api="Produce", error="POLICY_VIOLATION", **condition)
    put(client, topic)
    with pytest.raises(TimeoutError, match=re.escape(unmet)):
        fault.wait(timeout_s=0)


def test_the_error_of_a_wait_says_that_no_request_reached_the_rule(server, client, topic):
    server.faults.add("error", api="Produce", error="POLICY_VIOLATION")
    behind = server.faults.add("disconnect", api="Produce")
    put(client, topic)
    with pytest.raises(TimeoutError, match="no request has come, or rules before it decided"):
        behind.wait(timeout_s=0)


@pytest.mark.parametrize(
    ("request_", "version", "entity"),
    [
        (describe_groups.DescribeGroupsRequest(["g"]), 5, {"group": "g"}),
        (consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", subscribed_topic_names=["t"]), 0, {"topic": "t"}),
    ],
)
def test_names_in_lists_match_a_rule(server, client, request_, version, entity):
    fault = server.faults.add("error", error="POLICY_VIOLATION", **entity)
    client.call(request_, version)
    assert fault.fired == 1


def test_an_error_for_a_produce_without_a_response_closes_the_connection(server, client, topic):
    server.faults.add("error", api="Produce", error="POLICY_VIOLATION")
    client.send(produced(topic, acks=0), 9)
    assert client.at_end()


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("errer", {}, "kind: must be one of"),
        ("error", {}, 'the kind "error" needs an error'),
        ("error", {"error": "NO_SUCH"}, 'there is no error "NO_SUCH"'),
        ("error", {"error": "NONE"}, "NONE is not an error"),
        ("delay", {"delay_ms": 5, "error": "POLICY_VIOLATION"}, 'the kind "delay" takes no error'),
        ("disconnect", {"delay_ms": 5}, 'the kind "disconnect" takes no delay_ms'),
        ("delay", {}, 'the kind "delay" needs delay_ms'),
        (
            "partition_error",
            {"error": "NOT_LEADER_OR_FOLLOWER"},
            'the kind "partition_error" needs a topic or a partition',
        ),
        (
            "partition_error",
            {"error": "NOT_LEADER_OR_FOLLOWER", "topic": "t", "api": "Heartbeat"},
            'the kind "partition_error" has no effect on "Heartbeat"',
        ),
        ("reorder", {}, 'the kind "reorder" needs delay_ms'),
        ("disconnect", {"api": "Produse"}, 'there is no API "Produse"; did you mean "Produce"'),
        ("error", {"error": "NOT_LEADER"}, 'there is no error "NOT_LEADER"; did you mean "NOT_LEADER_OR_FOLLOWER"'),
        ("disconnect", {"api": "Heartbeat", "topic": "t"}, 'requests of "Heartbeat" name no topics'),
        ("disconnect", {"api": "JoinGroup", "partition": 0}, 'requests of "JoinGroup" name no partitions'),
        ("disconnect", {"api": "Produce", "group": "g"}, 'requests of "Produce" name no groups'),
        ("stale_metadata", {"group": "g"}, 'requests of the kind "stale_metadata" name no groups'),
        ("stale_metadata", {"api": "Fetch"}, 'the kind "stale_metadata" has no effect on "Fetch"'),
        ("throttle", {"api": "SaslHandshake", "delay_ms": 1}, 'responses of "SaslHandshake" have no throttle time'),
        ("disconnect", {"topics": "x"}, 'topics: unknown key; did you mean "topic"'),
        ("disconnect", {"probability": 2.0}, "probability: must be at most 1"),
    ],
)
def test_an_invalid_rule_is_refused(server, kind, options, problem):
    with pytest.raises(ValueError, match=problem):
        server.faults.add(kind, **options)


def test_this_file_tests_every_kind_of_fault(server):
    with pytest.raises(ValueError) as caught:
        server.faults.add("?")
    assert all(kind in str(caught.value) for kind in KINDS)


def test_rules_are_read_from_a_file(tmp_path, capsys):
    file = tmp_path / "klamm.toml"
    text = """\
[listeners.default]
bind = "127.0.0.1:0"
filters = ["faults"]

[listeners.default.faults.rules.refuse]
kind = "error"
api = ["Produce"]
error = "POLICY_VIOLATION"
count = 1
"""
    file.write_text(text, encoding="utf-8")
    with EmbeddedServer(file=file) as server, RawClient(server.address()) as client:
        topic = server.create_topic()
        assert [put(client, topic) for _ in range(2)] == [ErrorCode.POLICY_VIOLATION, 0]
        (fault,) = server.faults.faults
        assert (fault.name, fault.fired) == ("refuse", 1)
    file.write_text(text.replace('error = "POLICY_VIOLATION"\n', ""), encoding="utf-8")
    assert main(["check", str(file)]) == 2
    assert 'faults.rules.refuse: the kind "error" needs an error' in capsys.readouterr().err


def test_records_survive_random_faults(tmp_path):
    with EmbeddedServer(["listeners.default.faults.chaos=true"], faults=True) as server:
        topic = server.create_topic()
        done = 0
        while done < 300:
            with contextlib.suppress(ConnectionError), RawClient(server.address()) as client:
                while done < 300:
                    done += not put(client, topic)
        assert sum(fault.fired for fault in server.faults.faults) > 0
        assert len(server.consume(topic)) >= 300


def test_the_helpers_raise_the_servers_errors(server):
    with pytest.raises(KafkaError):
        server.admin.partitions("nowhere")


def test_a_rule_for_one_node_does_not_apply_to_another():
    with EmbeddedServer(nodes=2, faults=True) as server, RawClient(server.address()) as client:
        brokers = client.call(metadata.MetadataRequest(topics=[]), 12).brokers
        first, second = sorted(brokers, key=lambda broker: broker.node_id)
        server.faults.add("error", node=second.node_id, api="Heartbeat", error="FENCED_INSTANCE_ID")
        answers = []
        for broker in (first, second):
            with RawClient((broker.host, broker.port)) as other:
                answers.append(other.call(heartbeat.HeartbeatRequest("g", 1, "m"), 4).error_code)
    assert answers[0] != ErrorCode.FENCED_INSTANCE_ID
    assert answers[1] == ErrorCode.FENCED_INSTANCE_ID
