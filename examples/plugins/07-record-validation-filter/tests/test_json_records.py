"""A producer gets INVALID_RECORD for a value that is no JSON object with the keys, and the batch is not stored."""

import pytest
from confluent_kafka import Producer

import klamm_json_records
from klamm.testing import EmbeddedServer


@pytest.fixture(scope="module")
def server():
    settings = ['listeners.default.filters=["json_records"]', 'listeners.default.json_records.required=["id"]']
    with EmbeddedServer(settings, plugins=[klamm_json_records]) as server:
        yield server


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (b'{"id": 1}', "ok"),
        (None, "ok"),
        (b"{", "INVALID_RECORD"),
        (b"[1]", "INVALID_RECORD"),
        (b"{}", "INVALID_RECORD"),
    ],
)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_a_producer_gets(server, value, outcome, codec):
    topic, seen = server.create_topic(), []
    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": codec, "linger.ms": 0})
    producer.produce(topic, value, key=b"k", on_delivery=lambda error, _: seen.append(error.name() if error else "ok"))
    assert producer.flush(10) == 0
    assert seen == [outcome]
    assert len(server.consume(topic)) == (1 if outcome == "ok" else 0)
