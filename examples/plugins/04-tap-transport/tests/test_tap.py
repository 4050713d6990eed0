"""A client produces and consumes through the transport, and its bytes are in the files."""

from confluent_kafka import Consumer, Producer

import klamm_tap
from klamm.testing import EmbeddedServer


def test_a_round_trip_is_in_the_files(tmp_path):
    settings = ["listeners.default.transport=tap", f"listeners.default.tap.directory={tmp_path}"]
    with EmbeddedServer(settings, plugins=[klamm_tap]) as server:
        topic = server.create_topic()
        producer = Producer({"bootstrap.servers": server.bootstrap})
        producer.produce(topic, b"seen on the way")
        assert producer.flush(10) == 0
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"seen on the way"
        consumer.close()
    for suffix in ("in", "out"):
        captured = b"".join(file.read_bytes() for file in tmp_path.glob(f"*.{suffix}"))
        assert b"seen on the way" in captured
