"""The writer's thread summarizes long events, with the same result as the serving thread.

A long event belongs to a request that names many things.
"""

import sys
from unittest.mock import Mock

import pytest

from klamm import ErrorCode
from klamm.wire.messages import list_offsets, offset_commit
from klamm_spark.observer.long_events import LongEvent
from tests.unit.audit.observing import Observing

MANY = 600


def listed(audit, connection, names, error=0, **options):
    topics = [list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0)]) for name in names]
    answers = [
        list_offsets.ListOffsetsTopicResponse(name, [list_offsets.ListOffsetsPartitionResponse(0, error)])
        for name in names
    ]
    request, response = list_offsets.ListOffsetsRequest(-1, 0, topics), list_offsets.ListOffsetsResponse(topics=answers)
    return audit.request(connection, request, response, version=5, size=20_000, **options)


def committed(audit, connection, names):
    topics = [
        offset_commit.OffsetCommitRequestTopic(name, partitions=[offset_commit.OffsetCommitRequestPartition(0, number)])
        for number, name in enumerate(names)
    ]
    request = offset_commit.OffsetCommitRequest("billing", topics=topics)
    return audit.request(connection, request, offset_commit.OffsetCommitResponse(), version=8, size=20_000)


def denied(audit, connection, names):
    decisions = [("DESCRIBE", "TOPIC", name, number % 2 == 0) for number, name in enumerate(names)]
    error = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return listed(audit, connection, names, error, decisions=decisions)


KINDS = {
    "read": listed,
    "failed": lambda *arguments: listed(*arguments, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    "denied": denied,
    "change": committed,
}


def recorded(folder, kind, **settings):
    audit = Observing(folder, **settings)
    names = [f"topic-{number}" for number in range(MANY)]
    audit.complete(KINDS[kind](audit, audit.connection(), names))
    queues = [stream.queue for stream in (audit.sink.requests, audit.sink.security, audit.sink.administration)]
    waiting = max(queue.size for queue in queues)
    return waiting, [{**event, "boot_id": ""} for event in audit.requests()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_event_is_recorded_as_if_it_were_summarized_at_once(tmp_path, kind):
    waiting, events = recorded(tmp_path / "long", kind)
    assert waiting > 1, "it takes the room of several events"
    # A queue for few events would have no room for this one.
    _, at_once = recorded(tmp_path / "short", kind, queue_capacity=4)
    assert [{**event, "event_id": ""} for event in events] == [{**event, "event_id": ""} for event in at_once]
    assert events


def test_the_serving_thread_does_not_summarize_a_long_event(audit):
    connection = audit.connection()
    audit.complete(listed(audit, connection, [f"topic-{number}" for number in range(MANY)]))
    audit.complete(listed(audit, connection, ["orders"]))
    entries, _dropped = audit.sink.requests.queue.take()
    recorder = Mock()
    for entry in entries:
        entry(recorder)
    kept = [event for call in recorder.requests.mock_calls for event in call.args[1]]
    assert [type(event) is LongEvent for event in kept] == [True, False]


def test_the_messages_of_a_long_event_are_freed_when_it_is_written(audit):
    event = listed(audit, audit.connection(), [f"topic-{number}" for number in range(MANY)])
    topic = event.request.topics[5]
    audit.complete(event)
    del event
    audit.flush()
    # The memory of the call itself depends on the version of Python.
    held_here_alone = object()
    assert sys.getrefcount(topic) == sys.getrefcount(held_here_alone)


@pytest.mark.parametrize(("count", "often"), [(10, False), (100, True), (MANY, True)])
def test_threads_switch_often_while_the_writer_records_many_resources(audit, monkeypatch, count, often):
    said = []
    connection = audit.connection()
    client = audit.observer._client(connection)
    monkeypatch.setattr(client.listener, "switch_often", lambda: said.append(True))
    audit.complete(committed(audit, connection, [f"topic-{number}" for number in range(count)]))
    assert bool(said) is often
    assert len(audit.requests()[0]["resources"]) == 1 + count
