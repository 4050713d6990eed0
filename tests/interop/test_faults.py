"""Tests of how confluent-kafka, kafka-python, aiokafka and Java's client see each kind of fault."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import produce
from klamm.wire.records import Record, encode_batch
from tests.interop.clients.java import java_command
from tests.interop.java_programs import programs

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]
LATE_MS = 300
GROUP = "faulty-group"

Probe = Callable[[str, str], str]
"""A function that gets bootstrap and topic. It returns what the client saw: `ok`, or the name of an error."""


def partitions_for(topic: str) -> list[int | None]:
    """Return the partitions to which a probe sends a record each. None leaves the choice to the client."""
    return [0, 1] if "partition_error" in topic else [None, None] if "throttle" in topic else [None]


def confluent_produce(bootstrap: str, topic: str) -> str:
    from confluent_kafka import Producer

    seen: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "throttle_cb": lambda event: seen.append("throttled")})
    for partition in partitions_for(topic):
        where = {} if partition is None else {"partition": partition}
        producer.produce(
            topic, b"value", **where, on_delivery=lambda error, _: seen.append(error.name() if error else "ok")
        )
        producer.flush(20)
    return " ".join(sorted(set(seen)))


def confluent_consume(bootstrap: str, topic: str) -> str:
    from confluent_kafka import Consumer

    config = {"bootstrap.servers": bootstrap, "group.id": "g-" + topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "check.crcs": True})
    consumer.subscribe([topic])
    seen = []
    while "ok" not in seen:
        message = consumer.poll(20)
        assert message is not None
        seen.append(message.error().name() if message.error() else "ok")
    consumer.close()
    return " ".join(seen)


def confluent_commit(bootstrap: str, topic: str) -> str:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP + topic})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    except KafkaException as error:
        return str(error.args[0].name())
    finally:
        consumer.close()
    return "ok"


def kafka_python_produce(bootstrap: str, topic: str) -> str:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    config = {"bootstrap_servers": bootstrap, "retry_backoff_ms": 50, "request_timeout_ms": 2000}
    producer = KafkaProducer(**config, retries=5, enable_idempotence=False)
    seen = []
    for partition in partitions_for(topic):
        try:
            producer.send(topic, b"value", partition=partition).get(20)
            seen.append("ok")
        except KafkaError as error:
            seen.append(type(error).__name__)
    producer.close()
    return " ".join(sorted(set(seen)))


def kafka_python_consume(bootstrap: str, topic: str) -> str:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    seen = []
    try:
        while "ok" not in seen:
            try:
                if consumer.poll(20_000):
                    seen.append("ok")
            except KafkaError as error:
                seen.append(type(error).__name__)
                assert len(seen) < 5
    finally:
        consumer.close()
    return " ".join(seen)


def kafka_python_commit(bootstrap: str, topic: str) -> str:
    from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP + topic, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)})
    consumer.close()
    return "ok"


def aiokafka_produce(bootstrap: str, topic: str) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def send() -> str:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, retry_backoff_ms=50) as producer:
            seen = []
            for partition in partitions_for(topic):
                try:
                    await producer.send_and_wait(topic, b"value", partition=partition)
                    seen.append("ok")
                except KafkaError as error:
                    seen.append(type(error).__name__)
        return " ".join(sorted(set(seen)))

    return asyncio.run(asyncio.wait_for(send(), 20))


def aiokafka_consume(bootstrap: str, topic: str) -> str:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    async def consume() -> str:
        seen: list[str] = []
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            while "ok" not in seen:
                try:
                    await consumer.getone()
                    seen.append("ok")
                except KafkaError as error:
                    seen.append(type(error).__name__)
                    assert len(seen) < 5
        return " ".join(seen)

    return asyncio.run(asyncio.wait_for(consume(), 20))


def aiokafka_commit(bootstrap: str, topic: str) -> str:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def commit() -> str:
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=GROUP + topic, enable_auto_commit=False
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): 1})
        return "ok"

    return asyncio.run(asyncio.wait_for(commit(), 20))


PROBES: dict[str, tuple[Probe, Probe, Probe]] = {
    "confluent-kafka": (confluent_produce, confluent_consume, confluent_commit),
    "kafka-python": (kafka_python_produce, kafka_python_consume, kafka_python_commit),
    "aiokafka": (aiokafka_produce, aiokafka_consume, aiokafka_commit),
}
# For each kind: its rule, the outcome of each client whose outcome is not `ok`, and the number of records at the end.
RULES = {
    "error": {"api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED"},
    "error_after": {"api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED"},
    "delay": {"api": "Produce", "delay_ms": LATE_MS},
    "slow": {"api": "Produce", "delay_ms": LATE_MS},
    "disconnect": {"api": "Produce"},
    "disconnect_after": {"api": "Produce"},
    "truncate": {"api": "Produce"},
    "corrupt": {"api": "Fetch"},
    "stale_metadata": {"api": "Metadata"},
    "coordinator_moved": {"api": "OffsetCommit"},
    "throttle": {"api": "Produce", "delay_ms": LATE_MS},
    "partition_error": {"partition": 0, "error": "RECORD_LIST_TOO_LARGE", "api": "Produce"},
    "reorder": {"api": "Produce", "delay_ms": 60_000},
}
SEEN = {
    ("error", "confluent-kafka"): "TOPIC_AUTHORIZATION_FAILED",
    ("error", "kafka-python"): "TopicAuthorizationFailedError",
    ("error", "aiokafka"): "TopicAuthorizationFailedError",
    ("error", "java"): "TopicAuthorizationException",
    ("corrupt", "confluent-kafka"): "_BAD_MSG ok",
    ("corrupt", "aiokafka"): "CorruptRecordException ok",
    ("corrupt", "java"): "KafkaException ok",
    ("throttle", "confluent-kafka"): "ok throttled",
}
SEEN |= {("error_after", client): seen for (kind, client), seen in SEEN.items() if kind == "error"}
SEEN |= {
    ("partition_error", "confluent-kafka"): "RECORD_LIST_TOO_LARGE ok",
    ("partition_error", "kafka-python"): "RecordListTooLargeError ok",
    ("partition_error", "aiokafka"): "RecordListTooLargeError ok",
    ("partition_error", "java"): "RecordBatchTooLargeException ok",
}
RECORDS: dict[object, int] = {"error": 0, "disconnect_after": 2, "truncate": 2, "throttle": 2, "coordinator_moved": 0}
RECORDS["reorder"] = 2
RECORDS[("corrupt", "kafka-python")] = 3


@pytest.fixture(scope="module")
def server():
    with EmbeddedServer(faults=True) as server:
        yield server


def prepare(server, kind, client):
    topic = server.create_topic(f"{kind}-{client}", partitions=2 if kind == "partition_error" else 1)
    if kind == "corrupt":
        server.produce(topic, "value")
    rule = RULES[kind] if kind == "coordinator_moved" else {**RULES[kind], "topic": topic}
    fault = server.faults.add(kind, count=1, **rule)
    if kind == "reorder":
        threading.Thread(target=overtake, args=(server.address(), topic, fault), daemon=True).start()
    return topic, fault


def overtake(address, topic, fault):
    """Send a record on another connection while the first record waits."""
    fault.wait(timeout_s=100)
    records = bytes(encode_batch([Record(value=b"sent later")]))
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, records)])
    with RawClient(address) as client:
        client.call(produce.ProduceRequest(None, -1, 1000, [data]), 9)


def check(server, client, kind, topic, fault, seen, took_s):
    assert seen == SEEN.get((kind, client), "ok")
    assert fault.fired == 1
    values = [record.value for record in server.consume(topic)]
    assert len(values) == RECORDS.get((kind, client), RECORDS.get(kind, 1))
    assert kind != "reorder" or values[0] == b"sent later"
    if kind in ("delay", "slow", "throttle"):
        assert took_s >= LATE_MS / 1000


@pytest.mark.parametrize("client", PROBES)
@pytest.mark.parametrize("kind", RULES)
def test_a_client_sees_what_the_rule_says(server, kind, client):
    topic, fault = prepare(server, kind, client)
    producing, consuming, committing = PROBES[client]
    probe = {"corrupt": consuming, "coordinator_moved": committing}.get(kind, producing)
    if (kind, client) == ("corrupt", "kafka-python"):
        # The client never returns from a poll that gets such records, because it requests an unreadable answer again.
        fault.remove()
        fault = server.faults.add(kind, count=1, api="Produce", topic=topic)
        probe = producing
    started = time.monotonic()
    seen = probe(server.bootstrap, topic)
    check(server, client, kind, topic, fault, seen, time.monotonic() - started)


def test_java_sees_what_the_rules_say(server, tmp_path):
    faults = {kind: prepare(server, kind, "java") for kind in RULES}
    command = java_command("FaultProbe", server.bootstrap, *RULES, classes=programs())
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(RULES), done.stderr
    for kind, seen, took_ms in lines:
        check(server, "java", kind, *faults[kind], seen, int(took_ms) / 1000)
