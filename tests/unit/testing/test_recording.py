"""Tests of the observer `recording`: its requests, their JSON, and `klamm replay`."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from klamm.cli.main import main
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import create_topics, find_coordinator, metadata, produce
from klamm.wire.records import Record, encode_batch


@pytest.fixture(scope="module")
def shared():
    with EmbeddedServer(recording=True) as server:
        yield server


@pytest.fixture
def server(shared):
    shared.recording.clear()
    return shared


@pytest.fixture
def client(server):
    with RawClient(server.address(), client_id="mine") as client:
        yield client


def produced(topic="", topic_id=bytes(16), acks=-1):
    headers = (("h", b"\xff"),)
    batch = bytes(encode_batch([Record(timestamp_ms=7, key=b"k", value=b"v", headers=headers)]))
    data = produce.TopicProduceData(topic, topic_id, [produce.PartitionProduceData(0, batch)])
    return produce.ProduceRequest(None, acks, 1000, [data])


def recorded(server, count, api=None):
    found = server.requests(api)
    assert len(found) == count
    return found


def test_requests_are_recorded_with_their_answers(server, client):
    topic = server.create_topic()
    client.call(produced(topic), 9)
    client.call(find_coordinator.FindCoordinatorRequest("g"), 3)
    first, second = recorded(server, 2)
    assert (first.api, first.version, first.client_id, first.listener) == ("Produce", 9, "mine", "default")
    assert (first.outcome, first.error_code, second.api) == ("answered", 0, "FindCoordinator")
    assert first.request.topic_data[0].name == topic
    assert first.response.responses[0].name == topic
    assert [one.api for one in server.requests("Produce")] == ["Produce"]
    with pytest.raises(ValueError, match='there is no API "Produse"'):
        server.requests("Produse")


def test_a_request_is_recorded_before_its_client_gets_the_answer(server, client):
    for number in range(200):
        client.call(find_coordinator.FindCoordinatorRequest(f"g{number}"), 3)
        assert len(server.requests()) == number + 1


def test_a_test_can_wait_for_requests(server, client):
    with pytest.raises(TimeoutError, match="0 requests FindCoordinator came in 0.01 s, not 1"):
        server.requests("FindCoordinator", count=1, timeout_s=0.01)
    with ThreadPoolExecutor(1) as waiting:
        found = waiting.submit(server.requests, "FindCoordinator", count=1)
        client.call(find_coordinator.FindCoordinatorRequest("g"), 3)
        assert len(found.result()) == 1


def test_requests_are_written_as_readable_json(server, client):
    topic = server.create_topic()
    client.call(produced(topic), 9)
    (one,) = recorded(server, 1)
    found = json.loads(json.dumps(one.to_json()))
    record = {"offset": 0, "timestamp_ms": 7, "key": "k", "value": "v", "headers": [["h", {"hex": "ff"}]]}
    data = {"name": topic, "partition_data": [{"records": [record]}]}
    assert found["request"] == {"acks": -1, "timeout_ms": 1000, "topic_data": [data]}
    assert found["response"]["responses"][0]["partition_responses"][0]["log_start_offset"] == 0
    assert found["principal"] == "User:ANONYMOUS"


def test_the_oldest_requests_are_removed_first():
    settings = ["listeners.default.recording.max_requests=2"]
    with EmbeddedServer(settings, recording=True) as server, RawClient(server.address()) as client:
        for name in "abc":
            client.call(find_coordinator.FindCoordinatorRequest(name), 3)
        server.wait_until(lambda: [one.request.key for one in server.requests()] == ["b", "c"])
    settings = ["listeners.default.recording.max_bytes=1"]
    with EmbeddedServer(settings, recording=True) as server, RawClient(server.address()) as client:
        for name in "abc":
            client.call(find_coordinator.FindCoordinatorRequest(name), 3)
        server.wait_until(lambda: [one.request.key for one in server.requests()] == ["c"])


def test_a_recording_is_replayed(server, client, tmp_path, capsys):
    client.call(create_topics.CreateTopicsRequest([create_topics.CreatableTopic("replayed", 1, 1)], 1000), 7)
    (described,) = client.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name="replayed")]), 12).topics
    client.call(produced(topic_id=described.topic_id), 13)
    client.send(produced("replayed", acks=0), 9)
    client.call(produced("nowhere"), 9)
    recorded(server, 5)
    file = tmp_path / "recording"
    server.recording.save(file)
    with EmbeddedServer() as other:
        to = ["--to", other.bootstrap]
        assert main(["replay", str(file), *to]) == 0
        assert capsys.readouterr().out == "5 requests, 0 of them with a different answer\n"
        assert [one.value for one in other.consume("replayed", 2)] == [b"v", b"v"]
        assert main(["replay", str(file), *to]) == 1
        assert "1 CreateTopics v7: no error, now error 36\n" in capsys.readouterr().out
    assert main(["replay", str(file), *to]) == 2
    file.write_text("{}\n")
    assert main(["replay", str(file), *to]) == 2
    assert "is not a recording" in capsys.readouterr().err
