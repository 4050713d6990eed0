"""Clients that write a history of their requests and answers, and faults that disturb them meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from klamm.testing.histories import Call, Recorder
from tests.peers.target import Bootstrap

PARTITIONS = 2
PATIENCE_S = 120
QUIET = {
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 100,
    "enable.metrics.push": False,
    "log_level": 0,
}
SETTING = "retention.ms"


class Workload:
    """Producers, consumers and admins of one topic. Each runs in its own thread, for a number of operations."""

    def __init__(self, server: Bootstrap, topic: str, record: Recorder, seed: int, replicas: int = 1) -> None:
        self._server = server
        self._topic = topic
        self._replicas = replicas
        self._record = record
        self._seed = seed
        self._values = count(1)
        self._errors: list[BaseException] = []

    def run(self, operations: int, disturb: Callable[[], None] | None = None) -> None:
        """Run all clients to their end, and `disturb` at the same time, then read all records.

        Raises the exceptions of clients that are not answers of a server.
        """
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap, **QUIET})
        admin.create_topics([NewTopic(self._topic, PARTITIONS, self._replicas)])[self._topic].result(PATIENCE_S)
        self._configure(admin, "setup", 10**9)
        jobs = [
            (self._send, "send-1"), (self._send, "send-2"), (self._transact, "txn-1"), (self._transact, "txn-2"),
            (self._poll, "poll-1"), (self._poll, "poll-2"),
            (self._administer, "admin-1"), (self._administer, "admin-2"),
        ]  # fmt: skip
        threads = [threading.Thread(target=self._guarded, args=(*job, operations)) for job in jobs]
        for thread in threads:
            thread.start()
        while disturb is not None and any(thread.is_alive() for thread in threads):
            disturb()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        # The next client with the same name ends the transaction that this client left open.
        for process in ("txn-1", "txn-2"):
            self._transactional(process)
        self._read_all()

    def _guarded(self, job: Callable[[str, Random, int], None], process: str, operations: int) -> None:
        try:
            job(process, Random(f"{self._seed} {process}"), operations)
        except BaseException as error:
            self._errors.append(error)

    def _name(self, partition: int) -> str:
        return f"{self._topic}-{partition}"

    def _send(self, process: str, choose: Random, operations: int) -> None:
        producer = self._idempotent()
        for _ in range(operations):
            partition, value = choose.randrange(PARTITIONS), next(self._values)
            with self._record.operation(process, "send", [["send", self._name(partition), value]]) as call:
                delivered = _Delivered()
                producer.produce(self._topic, str(value), partition=partition, on_delivery=delivered)
                # After a fatal error, flush of confluent-kafka 2 may raise SystemError.
                with suppress(SystemError):
                    producer.flush(PATIENCE_S)
                if delivered.offset is not None:
                    call.ok([["send", self._name(partition), value, delivered.offset]])
            if delivered.offset is None:
                # After a fatal error the client can do nothing more.
                producer = self._idempotent()

    def _idempotent(self) -> Producer:
        return Producer({"bootstrap.servers": self._server.bootstrap, "enable.idempotence": True, **QUIET})

    def _transactional(self, process: str) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._server.bootstrap, "transactional.id": f"{self._topic}-{process}", **QUIET}
        )
        _until_known(producer.init_transactions)
        return producer

    def _consumer(self, first: int | None = None) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._server.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                **QUIET,
            }
        )
        if first is not None:
            consumer.assign([TopicPartition(self._topic, partition, first) for partition in range(PARTITIONS)])
        return consumer

    def _polled(self, consumer: Consumer, timeout_s: float = 0.1) -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = {}
        for message in consumer.consume(50, timeout_s):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None and partition is not None and offset is not None and value is not None:
                found.setdefault(self._name(partition), []).append([offset, int(value)])
        return found

    def _transact(self, process: str, choose: Random, operations: int) -> None:
        producer = self._transactional(process)
        consumer = self._consumer(0)
        for _ in range(operations):
            sends = [(partition, next(self._values)) for partition in choose.sample(range(PARTITIONS), PARTITIONS)]
            steps = [["send", self._name(partition), value] for partition, value in sends]
            with self._record.operation(process, "txn", [*steps, ["poll"]]) as call:
                if not self._attempt(producer, consumer, call, sends, choose.random() < 0.3):
                    producer = self._transactional(process)
            if choose.random() < 0.1:
                self._assign(process, consumer)
            if choose.random() < 0.1:
                producer = self._succeed(process, producer)
        consumer.close()

    def _succeed(self, process: str, producer: Producer) -> Producer:
        """Return another producer of the same name, which fences this one within a transaction.

        Values that the fenced producer still writes must not be visible.
        """
        values = [next(self._values), next(self._values)]
        steps = [["send", self._name(0), value] for value in values]
        with self._record.operation(f"{process}-fenced", "txn", steps) as fenced:
            successor = None
            try:
                producer.begin_transaction()
                producer.produce(self._topic, str(values[0]), partition=0)
                producer.flush(PATIENCE_S)
                successor = self._transactional(process)
                fenced.fail()
                self._interrupted(process, successor, producer, values[1])
            except KafkaException:
                pass
        return successor or self._transactional(process)

    def _interrupted(self, process: str, producer: Producer, fenced: Producer, value: int) -> None:
        """Run a transaction in the middle of which a fenced producer sends a value. Raises KafkaException."""
        own = next(self._values)
        with self._record.operation(process, "txn", [["send", self._name(0), own]]) as call:
            producer.begin_transaction()
            producer.produce(self._topic, str(own), partition=0)
            producer.flush(PATIENCE_S)
            fenced.produce(self._topic, str(value), partition=0)
            fenced.flush(PATIENCE_S)
            _until_known(producer.commit_transaction)
            call.ok()

    def _attempt(
        self, producer: Producer, consumer: Consumer, call: Call, sends: list[tuple[int, int]], give_up: bool
    ) -> bool:
        """Run one transaction and record its end. Return False if the producer can run no further one."""
        delivered = [_Delivered() for _ in sends]
        try:
            producer.begin_transaction()
            for (partition, value), one in zip(sends, delivered, strict=True):
                producer.produce(self._topic, str(value), partition=partition, on_delivery=one)
            polled = self._polled(consumer, 0.01)
            if give_up:
                producer.abort_transaction(PATIENCE_S)
                call.fail()
                return True
            _until_known(producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                _until_known(producer.abort_transaction)
                call.fail()
                return True
            return False
        finally:
            done: list[Any] = [
                ["send", self._name(partition), value, one.offset]
                for (partition, value), one in zip(sends, delivered, strict=True)
            ]
            call.value = done
        call.ok([*done, ["poll", polled]])
        return True

    def _assign(self, process: str, consumer: Consumer) -> None:
        with self._record.operation(
            process, "assign", [self._name(partition) for partition in range(PARTITIONS)]
        ) as call:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
            call.ok()

    def _poll(self, process: str, choose: Random, operations: int) -> None:
        consumer = self._consumer(0)
        for _ in range(operations):
            if choose.random() < 0.1:
                self._assign(process, consumer)
            with self._record.operation(process, "poll", [["poll"]]) as call:
                call.ok([["poll", self._polled(consumer)]])
        consumer.close()

    def _administer(self, process: str, choose: Random, operations: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap, **QUIET})
        for _ in range(operations):
            if choose.random() < 0.4:
                self._configure(admin, process, 10**9 + next(self._values))
                continue
            with self._record.operation(process, "get", {"register": self._topic}) as call:
                resource = ConfigResource(ResourceType.TOPIC, self._topic)
                try:
                    found = admin.describe_configs([resource], request_timeout=PATIENCE_S)[resource].result()
                except KafkaException:
                    continue
                call.ok({"register": self._topic, "value": int(found[SETTING].value)})

    def _configure(self, admin: AdminClient, process: str, value: int) -> None:
        entry = ConfigEntry(SETTING, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._topic, incremental_configs=[entry])
        with self._record.operation(process, "set", {"register": self._topic, "value": value}) as call:
            try:
                admin.incremental_alter_configs([resource], request_timeout=PATIENCE_S)[resource].result()
            except KafkaException:
                return
            call.ok()

    def _read_all(self) -> None:
        consumer = self._consumer()
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(self._topic, partition), PATIENCE_S)[1]
            for partition in range(PARTITIONS)
        }
        with self._record.operation("last", "read_all") as call:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
            found: dict[str, list[list[int]]] = {self._name(partition): [] for partition in range(PARTITIONS)}
            while any(position.offset < ends[position.partition] for position in self._positions(consumer)):
                for name, records in self._polled(consumer).items():
                    found[name] += records
            call.ok(found)
        consumer.close()

    def _positions(self, consumer: Consumer) -> list[TopicPartition]:
        return consumer.position([TopicPartition(self._topic, partition) for partition in range(PARTITIONS)])


class _Delivered:
    """A callback that keeps the acknowledged offset."""

    offset: int | None = None

    def __call__(self, error: object, message: Any) -> None:
        if error is None:
            self.offset = message.offset()


def _until_known(end: Callable[[float], None]) -> None:
    """Begin or end, again as long as the server may not have done it. Raises KafkaException."""
    while True:
        try:
            end(PATIENCE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
