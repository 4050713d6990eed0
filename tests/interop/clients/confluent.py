"""The client confluent-kafka, which is librdkafka for Python."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.clients.base import (
    GIVE_UP_S,
    HEARTBEAT_INTERVAL_MS,
    IN_FLIGHT_RECORDS,
    POLL_RECORDS,
    SESSION_TIMEOUT_MS,
    Client,
)
from tests.interop.clients.member import Running, emit
from tests.interop.workload import PARTITIONS, Consumed, KeyValue


def _consumed(message: Message) -> Consumed:
    key, value, partition, offset = message.key(), message.value(), message.partition(), message.offset()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    assert partition is not None
    assert offset is not None
    return Consumed(partition, offset, key.decode(), value.decode())


def _raise_fatal(message: Message) -> Message:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return message


class Confluent(Client):
    name = "confluent-kafka"

    def create_topic(self, bootstrap: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            future.result(30)

    def produce_all(self, bootstrap: str, topic: str, records: Iterable[KeyValue], codec: str = "none") -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                "queue.buffering.max.messages": IN_FLIGHT_RECORDS,
                "message.timeout.ms": int(GIVE_UP_S * 1000),
            }
        )
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert producer.flush(GIVE_UP_S) == 0
        if refused:
            raise KafkaException(refused[0])

    def consume_all(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        consumed: list[Consumed] = []
        deadline = time.monotonic() + GIVE_UP_S
        while len(consumed) < count and time.monotonic() < deadline:
            consumed += [_consumed(_raise_fatal(message)) for message in consumer.consume(10_000, 1.0)]
        consumer.close()
        return consumed


def run_member(bootstrap: str, group: str, topic: str) -> None:
    """Run a group member that prints records before it commits, until SIGTERM; see `tests.interop.clients.member`."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    running = Running()
    while running:
        good = [message for message in consumer.consume(POLL_RECORDS, 0.2) if message.error() is None]
        if not good:
            continue
        emit(_consumed(message) for message in good)
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            running.note(error)
    consumer.close()
