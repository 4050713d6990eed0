"""Tests of unmodified serializers of client libraries with the Schema Registry. A deserializer reads their records."""

import json

import pytest

from klamm.testing import EmbeddedServer

pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs confluent-kafka[avro]", exc_type=ImportError)

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = pytest.mark.interop

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": "double"}],
}


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(schema_registry=True) as server:
        yield server


@pytest.fixture
def registry(server):
    server.reset()
    with SchemaRegistryClient({"url": server.schema_registry_url}) as client:
        yield client


def sent(server, topic, value):
    """Return the value that a consumer gets after a producer has sent this value."""
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message.error() is None
    return message.value()


def test_avro_values_are_written_and_read(server, registry):
    topic = server.create_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    order = {"id": "7", "total": 9.5}
    written = sent(server, topic, AvroSerializer(registry, json.dumps(ORDER))(order, context))
    assert AvroDeserializer(registry)(written, context) == order
    found = registry.get_latest_version(f"{topic}-value")
    assert (found.version, json.loads(found.schema.schema_str)) == (1, ORDER)


def test_json_schema_values_are_written_and_read(server, registry):
    module = pytest.importorskip("confluent_kafka.schema_registry.json_schema", exc_type=ImportError)
    topic = server.create_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "string"}}})
    written = sent(server, topic, module.JSONSerializer(schema, registry)({"id": "7"}, context))
    assert module.JSONDeserializer(schema, schema_registry_client=registry)(written, context) == {"id": "7"}
    assert registry.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"


def order_message():
    """Return a class of messages like generated code."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_values_are_written_and_read(server, registry):
    module = pytest.importorskip("confluent_kafka.schema_registry.protobuf", exc_type=ImportError)
    pytest.importorskip("grpc_tools", exc_type=ImportError)
    topic = server.create_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    kind = order_message()
    options = {"use.deprecated.format": False}
    written = sent(server, topic, module.ProtobufSerializer(kind, registry, options)(kind(id="7"), context))
    assert module.ProtobufDeserializer(kind, options, registry)(written, context) == kind(id="7")
    with SchemaRegistryClient({"url": server.schema_registry_url}) as other:
        assert module.ProtobufDeserializer(kind, options, other)(written, context) == kind(id="7")
    found = registry.get_latest_version(f"{topic}-value").schema
    assert found.schema_type == "PROTOBUF"
    assert "message Order {" in found.schema_str


def test_an_incompatible_schema_is_refused(server, registry):
    registry.register_schema("orders", Schema(json.dumps(ORDER), "AVRO"))
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "place", "type": "string"}]}
    assert not registry.test_compatibility("orders", Schema(json.dumps(more), "AVRO"))
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE") as refused:
        registry.register_schema("orders", Schema(json.dumps(more), "AVRO"))
    assert refused.value.http_status_code == 409
    registry.set_compatibility("orders", "FORWARD")
    registry.register_schema("orders", Schema(json.dumps(more), "AVRO"))
    assert registry.get_versions("orders") == [1, 2]


def test_schemas_with_references_are_written_and_read(server, registry):
    registry.register_schema("order", Schema(json.dumps(ORDER), "AVRO"))
    both = {"type": "record", "name": "Both", "fields": [{"name": "one", "type": "shop.Order"}]}
    named = [SchemaReference("shop.Order", "order", 1)]
    topic = server.create_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    serialize = AvroSerializer(registry, Schema(json.dumps(both), "AVRO", named))
    value = {"one": {"id": "7", "total": 9.5}}
    assert AvroDeserializer(registry)(sent(server, topic, serialize(value, context)), context) == value
    with pytest.raises(SchemaRegistryError, match="One or more references exist"):
        registry.delete_version("order", 1)


def test_schemas_are_deleted(registry):
    registry.register_schema("orders", Schema(json.dumps(ORDER), "AVRO"))
    assert registry.delete_subject("orders") == [1]
    assert registry.get_subjects() == []
    assert registry.delete_subject("orders", permanent=True) == [1]
