"""A client's request is in the file, with its outcome."""

import json

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import klamm_request_log
from klamm.testing import EmbeddedServer


def test_requests_become_lines(tmp_path):
    file = tmp_path / "requests.jsonl"
    settings = ['listeners.default.observers=["request_log"]', f"listeners.default.request_log.file={file}"]
    with EmbeddedServer(settings, plugins=[klamm_request_log]) as server:
        topic = server.create_topic()
        producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "shop"})
        producer.produce(topic, b"value")
        assert producer.flush(10) == 0
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "client.id": "admin"})
        with pytest.raises(KafkaException):
            admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    produced = [line for line in lines if line["api"] == "Produce"]
    assert [(line["client_id"], line["outcome"], line["error"]) for line in produced] == [("shop", "ANSWERED", "NONE")]
    failed = [line for line in lines if line["error"] == "TOPIC_ALREADY_EXISTS"]
    assert [(line["client_id"], line["api"]) for line in failed] == [("admin", "CreateTopics")]
