"""The client kafka-python, which implements the protocol in Python and has a thread for heartbeats."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

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


def _consumed(polled: dict[Any, list[Any]]) -> list[Consumed]:
    return [
        Consumed(record.partition, record.offset, record.key.decode(), record.value.decode())
        for records in polled.values()
        for record in records
    ]


class KafkaPython(Client):
    name = "kafka-python"

    def create_topic(self, bootstrap: str, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        admin.close()

    def produce_all(self, bootstrap: str, topic: str, records: Iterable[KeyValue], codec: str = "none") -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            batch_size=64 * 1024,
            linger_ms=5,
            delivery_timeout_ms=int(GIVE_UP_S * 1000),
        )
        in_flight: deque[Any] = deque()
        for key, value in records:
            in_flight.append(producer.send(topic, value.encode(), key.encode()))
            if len(in_flight) > IN_FLIGHT_RECORDS:
                in_flight.popleft().get(GIVE_UP_S)
        producer.flush(GIVE_UP_S)
        for future in in_flight:
            future.get(GIVE_UP_S)
        producer.close()

    def consume_all(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
        consumed: list[Consumed] = []
        deadline = time.monotonic() + GIVE_UP_S
        while len(consumed) < count and time.monotonic() < deadline:
            consumed += _consumed(consumer.poll(1000, max_records=10_000))
        consumer.close()
        return consumed


def run_member(bootstrap: str, group: str, topic: str) -> None:
    """Run a group member that prints records before it commits, until SIGTERM; see `tests.interop.clients.member`."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    )
    running = Running()
    while running:
        try:
            read = _consumed(consumer.poll(200, max_records=POLL_RECORDS))
            if not read:
                continue
            emit(read)
            consumer.commit()
        except KafkaError as error:
            running.note(error)
    consumer.close()
