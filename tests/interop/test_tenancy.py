"""Tests of real clients as two tenants with equal names on one broker: confluent-kafka, kafka-python, Java's tools."""

from __future__ import annotations

from collections.abc import Iterator

import kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import klamm_filters
from klamm.testing import EmbeddedServer
from tests.interop.clients.java import TOPIC_COMMAND, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]
TENANTS = ("a", "b")
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedServer]:
    settings = []
    for name in TENANTS:
        settings += [
            f"listeners.{name}.bind=127.0.0.1:0",
            f'listeners.{name}.filters=["topic_prefix"]',
            f"listeners.{name}.topic_prefix.prefix=tenant-{name}.",
        ]
    with EmbeddedServer(settings, plugins=[klamm_filters]) as server:
        yield server


def bootstrap(broker: EmbeddedServer, tenant: str) -> str:
    host, port = broker.address(tenant)
    return f"{host}:{port}"


def consume(servers: str, topic: str, count: int, **options: object) -> list[bytes | None]:
    settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest", **options}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None, "nothing came"
        assert message.error() is None
        found.append(message.value())
    consumer.commit(asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic.removeprefix("^"), 0)], 10)
    assert committed.offset == count
    consumer.close()
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_kafka_sees_only_its_tenant(broker: EmbeddedServer, protocol: str) -> None:
    topic = f"confluent-{protocol}"
    for name in TENANTS:
        servers = bootstrap(broker, name)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
        producer = Producer({"bootstrap.servers": servers, "transactional.id": f"txn-{protocol}"})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, f"of {name}".encode())
        producer.commit_transaction(10)
        read = consume(servers, topic, 1, **{"group.protocol": protocol})
        assert read == [f"of {name}".encode()]
        assert all("tenant" not in one for one in admin.list_topics(timeout=60).topics)
        groups = admin.list_consumer_groups().result(10).valid
        assert {one.group_id for one in groups} == {"readers"}
    assert {f"tenant-{name}.{topic}" for name in TENANTS} <= set(broker.admin.topics())


def test_a_regular_expression_finds_own_topics(broker: EmbeddedServer) -> None:
    for name in TENANTS:
        admin = AdminClient({"bootstrap.servers": bootstrap(broker, name)})
        admin.create_topics([NewTopic("regex", 1)])["regex"].result(10)
        producer = Producer({"bootstrap.servers": bootstrap(broker, name)})
        producer.produce("regex", name.encode())
        assert producer.flush(10) == 0
    for name in TENANTS:
        options = {"group.protocol": "consumer", "group.id": "by-regex"}
        assert consume(bootstrap(broker, name), "^regex", 1, **options) == [name.encode()]


def test_kafka_python_sees_only_its_tenant(broker: EmbeddedServer) -> None:
    for name in TENANTS:
        servers = bootstrap(broker, name)
        producer = kafka.KafkaProducer(bootstrap_servers=servers)
        assert producer.send("python", name.encode()).get(10).topic == "python"
        producer.close()
        consumer = kafka.KafkaConsumer(
            "python",
            bootstrap_servers=servers,
            group_id="python",
            auto_offset_reset="earliest",
            consumer_timeout_ms=5000,
        )
        record = next(iter(consumer))
        assert (record.topic, record.value) == ("python", name.encode())
        consumer.close()
        admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
        assert "python" in admin.list_topics()
        assert all("tenant" not in one for one in admin.list_topics())
        admin.close()


def test_javas_tools_see_only_their_tenant(broker: EmbeddedServer) -> None:
    for name in TENANTS:
        server = ["--bootstrap-server", bootstrap(broker, name)]
        run_tool(TOPIC_COMMAND, *server, "--create", "--topic", "java", "--partitions", "1")
        run_tool(VERIFIABLE_PRODUCER, *server, "--topic", "java", "--max-messages", "1", "--value-prefix", "7")
        more = ["--from-beginning", "--max-messages", "1", "--timeout-ms", "20000", "--group", "java"]
        assert run_tool(CONSOLE_CONSUMER, *server, "--topic", "java", *more).split() == ["7.0"]
        described = run_tool(TOPIC_COMMAND, *server, "--describe") + run_tool(GROUP_COMMAND, *server, "--list")
        assert "java" in described
        assert "tenant" not in described
