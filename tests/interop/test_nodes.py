"""Tests of clients on three nodes in one process: under load, leaders and coordinators move, and nodes stop.

The application gets no error, and each acknowledged record exists once.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka.errors import KafkaConnectionError, UnknownBrokerIdError

from klamm.testing import EmbeddedServer
from tests.interop.clients.java import java_command
from tests.peers.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(540)]

TOPIC = "moving"
GROUP = "movers"
TRANSACTIONAL_ID = "moved"
PARTITIONS = 6
PATIENCE_S = 60
RECORDS_BETWEEN_CHANGES = 20


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(nodes=3) as running:
        running.admin.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        yield running


class Application(ABC):
    """A program with a producer and a consumer, each in its own loop.

    The producer ends when `stop` is set. The consumer ends when it has read all records that were acknowledged by then.
    """

    changes: Sequence[str] = ("leader", "leader", "coordinator", "node")

    def __init__(self, bootstrap: str, topic: str = TOPIC, group: str = GROUP) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.stop = threading.Event()
        self.acknowledged: list[str] = []
        self.consumed: set[str] = set()
        self.errors: list[Any] = []
        self._is_complete = False
        loops = (self.produce, self.consume)
        self._threads = [threading.Thread(target=self._guarded, args=(loop,), daemon=True) for loop in loops]

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Exception as error:
            self.errors.append(error)

    @abstractmethod
    def produce(self) -> None: ...

    @abstractmethod
    def consume(self) -> None: ...

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"not consumed: {sorted({*self.acknowledged} - self.consumed)[:20]}"
            self._is_complete = True

    @property
    def has_consumed_all(self) -> bool:
        return self._is_complete and self.consumed.issuperset(self.acknowledged)


class Confluent(Application):
    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(error)
            else:
                self.acknowledged.append(message.value().decode())

        number = 0
        while not self.stop.is_set():
            producer.produce(self.topic, str(number), on_delivery=delivered)
            producer.poll(0.002)
            number += 1
        producer.flush(PATIENCE_S)

    def consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
            }
        )
        consumer.subscribe([self.topic])
        while not self.has_consumed_all:
            message = consumer.poll(0.1)
            if message is not None and message.error() is not None:
                self.errors.append(message.error())
            elif message is not None:
                self.consumed.add(message.value().decode())
        consumer.close()


class ConfluentTransactions(Confluent):
    """A `Confluent` client that produces in transactions. Every fifth transaction is aborted."""

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(PATIENCE_S)
        number = 0
        while not self.stop.is_set():
            producer.begin_transaction()
            values = [str(number + each) for each in range(5)]
            for value in values:
                producer.produce(self.topic, value)
            number += 5
            if number % 25 == 0:
                producer.abort_transaction(PATIENCE_S)
            else:
                producer.commit_transaction(PATIENCE_S)
                self.acknowledged.extend(values)


class KafkaPython(Application):
    """The client kafka-python.

    Its nodes do not stop, because kafka-python 3.0.12 may do nothing for half a minute then.
    """

    changes = ("leader", "coordinator")

    def produce(self) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap.split(","), acks="all", enable_idempotence=True)
        number = 0
        while not self.stop.is_set():
            sent = [(str(number + each), producer.send(self.topic, str(number + each).encode())) for each in range(10)]
            number += 10
            for value, future in sent:
                future.get(PATIENCE_S)
                self.acknowledged.append(value)
        producer.close()

    def consume(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            metadata_max_age_ms=1_000,
        )
        # A group leader that does not know the topic yet assigns nothing, and may not notice the topic later.
        while not consumer.partitions_for_topic(self.topic):
            time.sleep(0.1)
        consumer.subscribe([self.topic])
        while not self.has_consumed_all:
            try:
                polled = consumer.poll(100)
            except (KafkaConnectionError, UnknownBrokerIdError):
                # This client raises errors of its connections, and the next poll continues.
                continue
            for records in polled.values():
                self.consumed.update(record.value.decode() for record in records)
        consumer.close()


class Aiokafka(Application):
    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True) as producer:
            number = 0
            while not self.stop.is_set():
                values = [str(number + each) for each in range(10)]
                number += 10
                await asyncio.gather(*(producer.send_and_wait(self.topic, value.encode()) for value in values))
                self.acknowledged.extend(values)

    def consume(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
        )
        async with consumer:
            while not self.has_consumed_all:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self.consumed.update(record.value.decode() for record in records)
            # This client's stop does not end while it looks for its coordinator.
            await consumer.commit()


class Java(Application):
    """Kafka's tools VerifiableProducer and VerifiableConsumer."""

    def produce(self) -> None:
        arguments = ["--bootstrap-server", self.bootstrap, "--topic", self.topic, "--throughput", "500", "--acks", "-1"]
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
            # The tool's own default is 0.
            file.write(f"retries={2**31 - 1}\n")
            file.flush()
            arguments += ["--command-config", file.name]
            self._run("VerifiableProducer", arguments, self._produced, self.stop.is_set)

    def _produced(self, event: dict[str, Any]) -> None:
        if event["name"] == "producer_send_success":
            self.acknowledged.append(event["value"])
        elif event["name"] == "producer_send_error":
            self.errors.append(event)

    def consume(self) -> None:
        arguments = ["--bootstrap-server", self.bootstrap, "--topic", self.topic, "--group-id", self.group, "--verbose"]
        self._run("VerifiableConsumer", arguments, self._received, lambda: self.has_consumed_all)

    def _received(self, event: dict[str, Any]) -> None:
        if event["name"] == "record_data":
            self.consumed.add(event["value"])

    @staticmethod
    def _run(
        tool: str, arguments: list[str], take: Callable[[dict[str, Any]], None], is_over: Callable[[], bool]
    ) -> None:
        command = java_command(f"org.apache.kafka.tools.{tool}", *arguments)
        ended = False
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            watcher = threading.Thread(target=_terminate_when, args=(process, is_over))
            watcher.start()
            assert process.stdout is not None
            for line in process.stdout:
                take(json.loads(line))
            ended = is_over()
            process.wait(PATIENCE_S)
            watcher.join()
        assert ended, f"{tool} ended with {process.returncode}"


def _terminate_when(process: subprocess.Popen[str], is_over: Callable[[], bool]) -> None:
    while process.poll() is None and not is_over():
        time.sleep(0.1)
    process.terminate()


class Cluster(Protocol):
    """A cluster of klamm's nodes, or of Kafka's brokers."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def nodes(self) -> Any: ...
    @staticmethod
    def wait_until(condition: Callable[[], Any], what: str = "", *, timeout_s: float = 10.0) -> Any: ...


class Changes:
    """Random changes of the cluster. At most one node is stopped, and records are produced after each change."""

    def __init__(self, server: Cluster, seed: int) -> None:
        self._server = server
        self._random = random.Random(seed)
        self._stopped = 0
        self.made: Counter[str] = Counter()

    def make(self, kinds: Sequence[str]) -> None:
        kind = self._random.choice(kinds)
        self.made[kind] += 1
        nodes = self._server.nodes
        running = [node["id"] for node in nodes.describe() if node["running"]]
        if kind == "leader":
            nodes.move_leader(TOPIC, self._random.randrange(PARTITIONS), self._random.choice(running))
        elif kind == "coordinator":
            nodes.move_coordinator(self._random.choice((GROUP, TRANSACTIONAL_ID)), self._random.choice(running))
        else:
            self.heal()
            self._stopped = self._random.choice((1, 2, 3))
            nodes.stop(self._stopped)

    def heal(self) -> None:
        if self._stopped:
            self._server.nodes.start(self._stopped)
            self._stopped = 0


APPLICATIONS = [Confluent, ConfluentTransactions, KafkaPython, Aiokafka, Java]


def under_changes(server: Cluster, kind: type[Application], count: int, seed: int) -> tuple[Application, Changes]:
    """Run an application while the cluster changes. Raises AssertionError if it has not consumed everything."""
    application = kind(server.bootstrap)
    changes = Changes(server, seed)
    application.start()
    try:
        for _ in range(count):
            goal = len(application.acknowledged) + RECORDS_BETWEEN_CHANGES
            server.wait_until(
                lambda goal=goal: len(application.acknowledged) >= goal or application.errors,
                f"records after {changes.made}",
                timeout_s=PATIENCE_S,
            )
            changes.make(application.changes)
            server.wait_until(
                lambda: application.consumed or application.errors, "the consumer's first record", timeout_s=PATIENCE_S
            )
        changes.heal()
    finally:
        application.finish()
    assert application.has_consumed_all
    return application, changes


def ride_out(server: EmbeddedServer, kind: type[Application], count: int, seed: int) -> None:
    application, changes = under_changes(server, kind, count, seed)
    assert application.errors == []
    found = Counter(record.value.decode() for record in server.consume(TOPIC) if record.value is not None)
    missing = set(application.acknowledged) - found.keys()
    repeated = [value for value, times in found.items() if times > 1]
    assert (missing, repeated) == (set(), []), f"seed {seed}: {changes.made}"


@pytest.mark.parametrize("kind", [Confluent, KafkaPython], ids=lambda kind: kind.__name__)
def test_clients_lose_nothing_while_the_cluster_changes(server: EmbeddedServer, kind: type[Application]) -> None:
    ride_out(server, kind, 6, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", APPLICATIONS, ids=lambda kind: kind.__name__)
def test_clients_lose_nothing_during_200_changes_of_the_cluster(
    server: EmbeddedServer, kind: type[Application]
) -> None:
    ride_out(server, kind, 200, seed=int(os.environ.get("KLAMM_SEED", random.randrange(1 << 30))))


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("kind", APPLICATIONS, ids=lambda kind: kind.__name__)
def test_clients_get_no_more_errors_than_with_three_kafka_brokers(
    server: EmbeddedServer, kind: type[Application], tmp_path: Path
) -> None:
    seed = int(os.environ.get("KLAMM_SEED", random.randrange(1 << 30)))
    count = int(os.environ.get("KLAMM_CHANGES", 20))
    ours, _ = under_changes(server, kind, count, seed)
    with KafkaCluster(tmp_path) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS)
        theirs, changes = under_changes(kafka, kind, count, seed)
    print(f"{kind.__name__}, {dict(changes.made)}: klamm {len(ours.errors)} errors, Kafka {len(theirs.errors)}")
    assert len(ours.errors) <= len(theirs.errors), (seed, ours.errors)
