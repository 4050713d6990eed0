"""Tests of transactions with public clients and with Kafka's own tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer

from tests.interop.clients.java import TOPIC_COMMAND, run_tool
from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
TIMEOUT_S = 30


@pytest.fixture
def topics(server: Server, topic: str) -> tuple[str, str]:
    """Return an input and an output topic of one partition each."""
    names = f"{topic}-in", f"{topic}-out"
    admin = kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.create_topics([kafka.admin.NewTopic(name, 1, 1) for name in names])
    admin.close()
    return names


def confluent(server: Server, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    return producer


@contextmanager
def consuming(server: Server, topic: str, group: str, isolation: str = "read_committed") -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    yield consumer
    consumer.close()


def read_to_end(consumer: Consumer) -> list[str]:
    """Return the values up to the end of the only partition."""
    values = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "nothing came"
        if message.error():
            return values
        values.append(message.value().decode())


def read_committed(server: Server, topic: str) -> list[str]:
    with consuming(server, topic, f"{topic}-readers") as consumer:
        return read_to_end(consumer)


def test_librdkafka_commits_and_aborts(server: Server, topics: tuple[str, str]) -> None:
    _, output = topics
    producer = confluent(server, output)
    for number in range(6):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(output, value=f"{number}-{each}")
        if number % 2:
            producer.flush()
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    expected = [f"{number}-{each}" for number in (0, 2, 4) for each in range(3)]
    assert read_committed(server, output) == expected
    with consuming(server, output, f"{output}-all", "read_uncommitted") as consumer:
        assert len(read_to_end(consumer)) == 18


def test_librdkafka_is_fenced_by_the_next_producer(server: Server, topics: tuple[str, str]) -> None:
    _, output = topics
    first = confluent(server, output)
    first.begin_transaction()
    first.produce(output, value="lost")
    first.flush()
    second = confluent(server, output)
    second.begin_transaction()
    second.produce(output, value="kept")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    second.commit_transaction(TIMEOUT_S)
    assert read_committed(server, output) == ["kept"]


def test_librdkafka_consumes_transforms_and_produces(server: Server, topics: tuple[str, str]) -> None:
    source, output = topics
    plain = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(30):
        plain.produce(source, value=str(number))
    plain.flush()
    producer = confluent(server, output)
    with consuming(server, source, output) as consumer:
        attempts = 0
        done = 0
        while done < 30:
            batch = consumer.consume(10, TIMEOUT_S)
            values = [int(message.value()) for message in batch if not message.error()]
            if not values:
                continue
            producer.begin_transaction()
            for value in values:
                producer.produce(output, value=str(value * 2))
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
            attempts += 1
            if attempts == 2:
                producer.abort_transaction(TIMEOUT_S)
                for committed in consumer.committed(consumer.assignment(), TIMEOUT_S):
                    consumer.seek(committed)
                continue
            producer.commit_transaction(TIMEOUT_S)
            done += len(values)
        assert [each.offset for each in consumer.committed(consumer.assignment(), TIMEOUT_S)] == [30]
    assert read_committed(server, output) == [str(2 * number) for number in range(30)]


def test_kafka_python_commits_and_aborts(server: Server, topics: tuple[str, str]) -> None:
    source, output = topics
    producer = kafka.KafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=output)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(output, str(number).encode())
        offsets = {kafka.TopicPartition(source, 0): kafka.structs.OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, f"{output}-group")
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=f"{output}-group")
    assert consumer.committed(kafka.TopicPartition(source, 0)) == 2
    consumer.close()
    assert read_committed(server, output) == ["0", "2"]


def test_aiokafka_commits_and_aborts(server: Server, topics: tuple[str, str]) -> None:
    source, output = topics

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=output)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(output, b"a")
            await producer.send_offsets_to_transaction({TopicPartition(source, 0): 7}, f"{output}-group")
        await producer.begin_transaction()
        await producer.send_and_wait(output, b"b")
        await producer.abort_transaction()
        other = AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=output)
        await other.start()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait(output, b"fenced")
        async with other.transaction():
            await other.send_and_wait(output, b"c")
        await producer.stop()
        await other.stop()
        consumer = AIOKafkaConsumer(
            output,
            bootstrap_servers=server.bootstrap,
            group_id=f"{output}-group",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        values = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
        assert await consumer.committed(TopicPartition(source, 0)) == 7
        await consumer.stop()
        return values

    assert asyncio.run(run()) == [b"a", b"c"]


def transactions(server: Server, *arguments: str) -> list[list[str]]:
    """Return the table that kafka-transactions.sh prints, without its head."""
    lines = run_tool(TRANSACTIONS, "--bootstrap-server", server.bootstrap, *arguments).splitlines()
    return [line.split() for line in lines[1:]]


def test_kafka_transactions_tool_lists_and_aborts(server: Server, topics: tuple[str, str]) -> None:
    _, output = topics
    producer = confluent(server, output)
    producer.begin_transaction()
    producer.produce(output, value="hangs")
    producer.flush()
    (listed,) = [row for row in transactions(server, "list") if row[0] == output]
    producer_id = listed[2]
    assert listed[3] == "Ongoing"
    (described,) = transactions(server, "describe", "--transactional-id", output)
    assert described[1:3] == [output, producer_id]
    assert described[-1] == f"{output}-0"
    (state,) = transactions(server, "describe-producers", "--topic", output, "--partition", "0")
    assert state[0] == producer_id
    assert state[-1] == "0"
    assert transactions(server, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0") == []
    run_tool(
        TRANSACTIONS,
        *("--bootstrap-server", server.bootstrap, "abort"),
        *("--topic", output, "--partition", "0", "--start-offset", "0"),
    )
    (state,) = transactions(server, "describe-producers", "--topic", output, "--partition", "0")
    assert state[-1] == "None"
    assert read_committed(server, output) == []


def test_transactional_message_copier_copies_each_message_once(server: Server, topics: tuple[str, str]) -> None:
    source, output = topics
    count = 1000
    producing = ["--bootstrap-server", server.bootstrap, "--topic", source, "--max-messages", str(count)]
    run_tool("org.apache.kafka.tools.VerifiableProducer", *producing, "--acks", "-1")
    said = run_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier",
        *("--broker-list", server.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", output, "--consumer-group", output, "--transactional-id", output),
        *("--transaction-size", "50", "--enable-random-aborts", "--group-mode", "--use-group-metadata"),
        timeout_s=120,
    )
    summary = json.loads(said.splitlines()[-1])
    assert summary["totalProcessed"] == count
    assert [int(value) for value in read_committed(server, output)] == list(range(count))


def test_kafka_features_tool_changes_features(server: Server) -> None:
    def features(*arguments: str) -> str:
        return run_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", server.bootstrap, *arguments)

    def finalized() -> dict[str, str]:
        return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", features("describe")))

    assert finalized()["transaction.version"] == "2"
    features("downgrade", "--feature", "transaction.version=1")
    assert finalized()["transaction.version"] == "1"
    with pytest.raises(RuntimeError, match=r"transaction\.version"):
        features("upgrade", "--feature", "transaction.version=9")
    features("upgrade", "--feature", "transaction.version=2")
    assert finalized()["transaction.version"] == "2"


def test_java_without_transaction_version_2_produces_in_transactions(server: Server, topics: tuple[str, str]) -> None:
    """Without version 2, the client adds partitions with a separate request, and epochs stay the same."""
    _, output = topics
    feature = ("--bootstrap-server", server.bootstrap)
    command = "org.apache.kafka.tools.FeatureCommand"
    run_tool(command, *feature, "downgrade", "--feature", "transaction.version=0")
    try:
        said = run_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", output, "--num-records", "300", "--record-size", "10", "--throughput", "2000"),
            *("--bootstrap-server", server.bootstrap, "--transactional-id", output),
            *("--transaction-duration-ms", "20"),
        )
        assert "300 records sent" in said
        (described,) = transactions(server, "describe", "--transactional-id", output)
        assert described[3:5] == ["0", "CompleteCommit"]
        assert len(read_committed(server, output)) == 300
    finally:
        run_tool(command, *feature, "upgrade", "--feature", "transaction.version=2")
    assert run_tool(TOPIC_COMMAND, *feature, "--list")
