"""Tests that large requests of real clients are within the limits and are answered in full."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]

TOPICS = [f"large-{number}" for number in range(1_000)]
PARTITIONS = 5
TIMEOUT_S = 240
VALUE_BYTES = 5_000_000


@pytest.fixture(scope="module")
def admin(session_server: Server) -> AdminClient:
    """Yield an admin client of a server with all topics, which one request has created."""
    client = AdminClient({"bootstrap.servers": session_server.bootstrap, "socket.timeout.ms": TIMEOUT_S * 1_000})
    wanted = [NewTopic(name, PARTITIONS, 1) for name in TOPICS]
    for created in client.create_topics(wanted, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
        created.result(TIMEOUT_S)
    return client


@pytest.fixture
def consumer(server: Server) -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "large", "enable.auto.commit": False})
    yield made
    made.close()


def every_partition(offset: int) -> list[TopicPartition]:
    return [TopicPartition(name, index, offset) for name in TOPICS for index in range(PARTITIONS)]


def test_all_topics_are_described(admin: AdminClient) -> None:
    found = admin.list_topics(timeout=TIMEOUT_S).topics
    assert {name: len(found[name].partitions) for name in TOPICS} == dict.fromkeys(TOPICS, PARTITIONS)


def test_offsets_of_5000_partitions_are_committed_and_fetched(admin: AdminClient, consumer: Consumer) -> None:
    assert not [one for one in consumer.commit(offsets=every_partition(7), asynchronous=False) if one.error]
    fetched = consumer.committed(every_partition(0), timeout=TIMEOUT_S)
    assert {one.offset for one in fetched} == {7}
    assert len(fetched) == len(TOPICS) * PARTITIONS


def test_configs_of_500_topics_are_described(admin: AdminClient) -> None:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in TOPICS[:500]]
    described = admin.describe_configs(resources, request_timeout=TIMEOUT_S)
    assert all("retention.ms" in each.result(TIMEOUT_S) for each in described.values())
    assert len(described) == 500


def test_records_of_1000_partitions_are_deleted(admin: AdminClient, server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for name in TOPICS:
        producer.produce(name, b"value", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    wanted = [TopicPartition(name, 0, 1) for name in TOPICS]
    deleted = admin.delete_records(wanted, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    assert {each.result(TIMEOUT_S).low_watermark for each in deleted.values()} == {1}
    assert len(deleted) == 1_000


def test_value_of_5_mb_is_produced_and_consumed(admin: AdminClient, server: Server, topic: str) -> None:
    large = NewTopic(topic, 1, 1, config={"max.message.bytes": str(VALUE_BYTES + 1_000)})
    admin.create_topics([large])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": server.bootstrap, "message.max.bytes": VALUE_BYTES + 1_000})
    failed = []
    producer.produce(topic, bytes(VALUE_BYTES), on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == [None]
