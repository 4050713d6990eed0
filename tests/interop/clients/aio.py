"""The client aiokafka, which uses asyncio, with one task each for fetching, heartbeats and the group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

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


class AioKafka(Client):
    name = "aiokafka"

    def create_topic(self, bootstrap: str, topic: str) -> None:
        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
            await admin.close()

        asyncio.run(create())

    def produce_all(self, bootstrap: str, topic: str, records: Iterable[KeyValue], codec: str = "none") -> None:
        async def produce() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                enable_idempotence=True,
                compression_type=None if codec == "none" else codec,
                max_batch_size=64 * 1024,
                linger_ms=5,
                request_timeout_ms=int(GIVE_UP_S * 1000),
            )
            await producer.start()
            in_flight: deque[Any] = deque()
            for key, value in records:
                in_flight.append(await producer.send(topic, value.encode(), key.encode()))
                if len(in_flight) > IN_FLIGHT_RECORDS:
                    await in_flight.popleft()
            await producer.flush()
            for future in in_flight:
                await future
            await producer.stop()

        asyncio.run(produce())

    def consume_all(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        async def consume() -> list[Consumed]:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            await consumer.start()
            partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            consumed: list[Consumed] = []
            async with asyncio.timeout(GIVE_UP_S):
                while len(consumed) < count:
                    consumed += _consumed(await consumer.getmany(timeout_ms=1000, max_records=10_000))
            await consumer.stop()
            return consumed

        return asyncio.run(consume())


async def _member(bootstrap: str, group: str, topic: str) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
    )
    await consumer.start()
    running = Running()
    while running:
        read = _consumed(await consumer.getmany(timeout_ms=200, max_records=POLL_RECORDS))
        if not read:
            continue
        emit(read)
        try:
            await consumer.commit()
        except KafkaError as error:
            running.note(error)
    await consumer.stop()


def run_member(bootstrap: str, group: str, topic: str) -> None:
    """Run a group member that prints records before it commits, until SIGTERM; see `tests.interop.clients.member`."""
    asyncio.run(_member(bootstrap, group, topic))
