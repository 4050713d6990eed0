"""Tests of Java libraries with the Schema Registry: Flink's Avro format, and Confluent's client and serializers.

Maven Central has no serializers of Confluent. KLAMM_CONFLUENT_JARS is a class path with the serializers for Avro, JSON
Schema and Protocol Buffers and their dependencies, e.g. `jars/*`.
"""

import base64
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from klamm.testing import EmbeddedServer
from tests.peers.kafka_jars import flink_registry

pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs confluent-kafka[avro]", exc_type=ImportError)

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.interop.test_schema_registry import order_message

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).with_name("java")
CONFLUENT_JARS = os.environ.get("KLAMM_CONFLUENT_JARS")
TYPES = ["AVRO", "JSON", *(["PROTOBUF"] if importlib.util.find_spec("grpc_tools") else [])]
LATEST = {"auto.register.schemas": False, "use.latest.version": True}


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(schema_registry=True) as server:
        yield server


@pytest.fixture
def registry(server):
    server.reset()
    with SchemaRegistryClient({"url": server.schema_registry_url}) as client:
        yield client


def java(jars, program, *words):
    """Return the lines that a program prints."""
    command = ["java", "-cp", jars, PROGRAMS / f"{program}.java", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_flinks_avro_format_reads_and_writes_values(server, registry):
    context = SerializationContext("orders", MessageField.VALUE)
    (written,) = java(flink_registry(), "RegistryClient", server.schema_registry_url, "write")
    assert AvroDeserializer(registry)(base64.b64decode(written), context) == {"id": "7", "total": 9.5}
    mine = AvroSerializer(registry, conf=LATEST)({"id": "8", "total": 0.5}, context)
    again = java(flink_registry(), "RegistryClient", server.schema_registry_url, "read", base64.b64encode(mine))
    assert again == ['{"id": "8", "total": 0.5}']


def test_confluents_client_uses_the_registry(server, registry):
    assert java(flink_registry(), "RegistryClient", server.schema_registry_url, "client", *TYPES[1:]) == []
    assert registry.get_subjects() == sorted(["orders", *TYPES[1:]])


@pytest.mark.skipif(not CONFLUENT_JARS, reason="KLAMM_CONFLUENT_JARS has no class path")
def test_confluents_serializers_read_and_write_values(server, registry):
    types = serializers(registry)
    words = ("ConfluentSerializers", server.bootstrap, server.schema_registry_url)
    for topic in types:
        server.create_topic(topic)
    assert java(CONFLUENT_JARS, *words, "produce", *types) == []
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for topic, (serialize, deserialize, expected, value, _) in types.items():
        context = SerializationContext(topic, MessageField.VALUE)
        assert deserialize(first_value(server, topic), context) == expected
        producer.produce(topic, serialize(value, context))
    assert producer.flush(60) == 0
    assert java(CONFLUENT_JARS, *words, "consume", *types) == [printed for *_, printed in types.values()]


def serializers(registry):
    """Return for each type Python's serializer and deserializer, Java's value, Python's value, and Java's output."""
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    order, other = {"id": "7", "total": 9.5}, {"id": "8", "total": 0.5}
    avro = AvroSerializer(registry, conf=LATEST), AvroDeserializer(registry)
    json_schema = JSONSerializer(None, registry, conf=LATEST), JSONDeserializer(None, schema_registry_client=registry)
    found = {
        "AVRO": (*avro, order, other, '{"id": "8", "total": 0.5}'),
        "JSON": (*json_schema, order, other, "{id=8, total=0.5}"),
    }
    if "PROTOBUF" in TYPES:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

        kind, now = order_message(), {"use.deprecated.format": False}
        both = ProtobufSerializer(kind, registry, {**now, **LATEST}), ProtobufDeserializer(kind, now, registry)
        found["PROTOBUF"] = (*both, kind(id="7"), kind(id="8"), 'id: "8"')
    return found


def first_value(server, topic):
    """Return the value of the first record."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    assert message.error() is None
    return message.value()
