"""Findings of the audit in a topic of klamm's own broker."""

import pytest

from klamm.testing import EmbeddedServer
from klamm_spark.errors import LakeError
from klamm_spark.findings.outputs import DeliveryError, Topic

pytest.importorskip("confluent_kafka")


def test_findings_are_written_to_a_topic():
    with EmbeddedServer() as server:
        topic = Topic("findings", {"bootstrap.servers": server.bootstrap})
        topic.send("u1", b'{"n":1}')
        topic.send("u2", b'{"n":2}')
        records = server.consume("findings", 2)
    assert [(record.key, record.value) for record in records] == [(b"u1", b'{"n":1}'), (b"u2", b'{"n":2}')]


def test_a_broker_that_does_not_answer():
    topic = Topic("findings", {"bootstrap.servers": "127.0.0.1:9", "message.timeout.ms": "100"})
    with pytest.raises(DeliveryError, match="timed out"):
        topic.send("u", b"{}")


def test_properties_that_librdkafka_refuses():
    with pytest.raises(LakeError, match="kafka: .*no.such"):
        Topic("findings", {"bootstrap.servers": "127.0.0.1:9", "no.such": "1"})
