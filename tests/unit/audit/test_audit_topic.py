"""Tests of events as records of a topic: they are those of the spool, without events about reading the topic itself."""

import json

import pytest

from klamm import ErrorCode, KafkaError
from klamm.testing import EmbeddedServer
from klamm_spark.observer.audit_topic import AuditTopic
from tests.peers.audit_load import audit_settings, read_events

TOPIC = "__audit"


def settings_of(spool, **more):
    settings = audit_settings(spool) | {"listeners.default.audit.topic": TOPIC} | more
    return [
        f"{key}={value if value == '-1' or value.isdigit() else json.dumps(value)}" for key, value in settings.items()
    ]


def in_spool(spool, name):
    return {event["event_id"]: event for event in read_events(spool / name)}


def fetches(spool):
    return [event for event in in_spool(spool, "node-1").values() if event.get("api_name") == "Fetch"]


def test_the_topic_has_the_spools_events_and_reading_it_adds_none(tmp_path):
    spool = tmp_path / "spool"
    with EmbeddedServer(settings_of(spool)) as server:
        server.create_topic("orders")
        server.produce("orders", b"one", b"two")
        server.wait_until(lambda: TOPIC in server.admin.topics(), "the topic of the audit")
        records = server.wait_until(
            lambda: [found for found in server.consume(TOPIC) if b'"api_name":"Produce"' in (found.value or b"")],
            "the event of the Produce request",
        )
        assert records[0].key == b"node-1"
        before = len(fetches(spool))
        for _ in range(20):
            server.consume(TOPIC)
        server.wait_until(lambda: len(fetches(spool)) >= before + 20, "reads of the topic are in the spool")
        values = [json.loads(found.value) for found in server.consume(TOPIC)]
        metrics = {family.name: family.samples for family in server.server.services.metrics.collect()}
    assert [sample.value for sample in metrics["klamm:type=Audit,name=TopicMisses"]] == [0]
    (taken,) = metrics["klamm:type=Audit,name=TopicRecords"]
    assert taken.value >= len(values)
    assert not [event for event in values if event.get("api_name") == "Fetch"]
    assert {event["kind"] for event in values} >= {"request", "connection", "admin"}
    assert len({event["event_id"] for event in values}) == len(values), "each once"
    everything = {}
    for name in ("node-1", "node-1~security", "node-1~administration"):
        everything |= in_spool(spool, name)
    assert all(everything[event["event_id"]] == event for event in values)


def test_without_topics_the_server_does_not_start(tmp_path):
    file = tmp_path / "klamm.toml"
    file.write_text('[listeners.default]\nbind = "127.0.0.1:0"\napi_set = "echo"\nobservers = ["audit"]\n')
    more = ['listeners.default.audit.topic="__audit"', f'listeners.default.audit.spool="{tmp_path / "spool"}"']
    with pytest.raises(Exception, match="topic needs an api_set that has topics"):
        EmbeddedServer(more, file=file).start()


LINE = b'{"connection_id":"%s","api_name":"%s","outcome":"%s","resources":[{"type":"TOPIC","name":"%s"}]}\n'


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (LINE % (b"a", b"Fetch", b"ok", b"__audit"), False),
        (LINE % (b"a", b"Fetch", b"denied", b"__audit"), True),
        (LINE % (b"a", b"OffsetCommit", b"ok", b"__audit"), False),
        (LINE % (b"a", b"DeleteTopics", b"ok", b"__audit"), True),
        (LINE % (b"a", b"Produce", b"ok", b"__audit"), True),
        (LINE % (b"reader", b"Fetch", b"ok", b"other"), False),
        (LINE % (b"a", b"Fetch", b"ok", b"other"), True),
        (LINE % (b"reader", b"OffsetCommit", b"ok", b"other"), True),
    ],
)
def test_fetches_from_the_topic_itself_are_left_out(line, kept):
    added = []
    topic = AuditTopic(TOPIC, lambda name, records: added.extend(value for _, value in records))
    topic.add(b"node-1", LINE % (b"reader", b"Fetch", b"ok", b"__audit"))
    topic.add(b"node-1", line)
    assert added == [line[:-1]] * kept


@pytest.mark.parametrize("api_name", [b"ListOffsets", b"OffsetFetch"])
def test_a_client_without_the_right_to_read_the_topic_cannot_hide_its_fetches(api_name):
    """Otherwise a client that may only describe the topic could keep its own fetches out of the topic."""
    added = []
    topic = AuditTopic(TOPIC, lambda name, records: added.extend(value for _, value in records))
    topic.add(b"node-1", LINE % (b"a", api_name, b"ok", b"__audit"))
    assert not added
    topic.add(b"node-1", LINE % (b"a", b"Fetch", b"ok", b"orders"))
    assert added == [(LINE % (b"a", b"Fetch", b"ok", b"orders"))[:-1]]


def test_a_topic_that_refuses_records_is_logged_once_and_counted(caplog):
    def refuse(name, records):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    topic = AuditTopic(TOPIC, refuse)
    for _ in range(3):
        topic.add(b"node-1", LINE % (b"a", b"Produce", b"ok", b"orders"))
    assert (topic.records, topic.missed) == (0, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "audit: the topic __audit takes no events: KAFKA_STORAGE_ERROR: the disk is full; the spool has them"
    ]
