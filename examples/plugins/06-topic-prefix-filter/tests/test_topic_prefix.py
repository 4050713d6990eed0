"""Tests with two listeners of one broker: one with the filter, one without."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

import klamm_topic_prefix
from klamm.testing import EmbeddedServer


@pytest.fixture
def doors():
    settings = [
        "listeners.team.bind=127.0.0.1:0",
        'listeners.team.filters=["team_topics"]',
        "listeners.team.team_topics.prefix=team-a.",
    ]
    with EmbeddedServer(settings, plugins=[klamm_topic_prefix]) as server:
        host, port = server.address("team")
        yield server, f"{host}:{port}"


def consume(bootstrap, topic, **more):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **more})
    consumer.subscribe([topic])
    message = consumer.poll(10)
    assert message is not None
    assert message.error() is None
    consumer.commit(message, asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, 0)], 10)
    assert [(one.topic, one.offset) for one in committed] == [(topic, 1)]
    consumer.close()
    return message.topic(), message.value()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_client_sees_its_own_topics_under_their_short_names(doors, protocol):
    server, team = doors
    server.create_topic("team-b.secrets")
    admin = AdminClient({"bootstrap.servers": team})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(10)
    assert set(admin.list_topics(timeout=10).topics) == {"orders"}
    assert set(server.admin.topics()) == {"team-a.orders", "team-b.secrets"}

    producer = Producer({"bootstrap.servers": team})
    producer.produce("orders", b"for team a")
    assert producer.flush(10) == 0
    assert consume(team, "orders", **{"group.protocol": protocol}) == ("orders", b"for team a")
    assert [record.value for record in server.consume("team-a.orders")] == [b"for team a"]


def test_topics_of_others_cannot_be_named(doors):
    server, team = doors
    server.create_topic("team-b.secrets")
    admin = AdminClient({"bootstrap.servers": team})
    resource = ConfigResource(ResourceType.TOPIC, "team-b.secrets")
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.describe_configs([resource])[resource].result(10)
