"""Clients that produce, commit, read and administer while their server dies, and record all acknowledgements."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Set
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from klamm import ErrorCode
from klamm.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.wire.messages.delete_topics import DeleteTopicsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.peers.server import HOST
from tests.peers.wire_client import WireClient

PARTITIONS = 3
RECORD_BYTES = 400
MOST_UNACKNOWLEDGED = 20_000
IMPATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 1}


class Load:
    """A producer that never stops and records all acknowledgements."""

    def __init__(self, bootstrap: str, topic: str, codec: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        """The number in the record at each partition and offset."""
        self.refused: list[KafkaError] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._codec = codec
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None:
            self.refused.append(error)
        elif partition is not None and offset is not None and isinstance(value, bytes):
            self.acknowledged[partition, offset] = int(value[:10])

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "compression.codec": self._codec,
                **IMPATIENT,
            }
        )
        number = 0
        while not self._stopping.wait(0.002):
            producer.poll(0)
            if len(producer) > MOST_UNACKNOWLEDGED:
                continue
            for _ in range(10):
                producer.produce(
                    self._topic,
                    b"%010d" % number + b"." * RECORD_BYTES,
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
        producer.flush(60)

    def wait_for_more(self, timeout_s: float = 60.0) -> None:
        """Wait for an acknowledgement that comes after this call."""
        before, deadline = len(self.acknowledged), time.monotonic() + timeout_s
        while len(self.acknowledged) == before:
            assert not self.refused, self.refused[0]
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop the producer. Return once all sent records are acknowledged or refused."""
        self._stopping.set()
        self._thread.join()


class Committer:
    """A client that commits higher and higher positions for a group until its connection breaks, and remembers the last
    acknowledged one.

    It uses a raw connection, because a client that retries would hide a loss with its next commit.
    """

    def __init__(self, port: int, topic: str, first: int) -> None:
        self.acknowledged = first
        self._topic = topic
        self._client = WireClient(HOST, port)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._client:
            self._client.call(FindCoordinatorRequest(key=f"{self._topic}-commits"), 2)
            while True:
                self._commit(self.acknowledged + 1)
                time.sleep(0.005)

    def _commit(self, position: int) -> None:
        partitions = [OffsetCommitRequestPartition(p, committed_offset=position) for p in range(PARTITIONS)]
        request = OffsetCommitRequest(
            f"{self._topic}-commits", topics=[OffsetCommitRequestTopic(self._topic, partitions=partitions)]
        )
        answer = self._client.call(request, 8)
        if all(partition.error_code == 0 for partition in answer.topics[0].partitions):
            self.acknowledged = position

    def wait_for_more(self, timeout_s: float = 30.0) -> None:
        """Wait for two more acknowledged commits."""
        wanted, deadline = self.acknowledged + 2, time.monotonic() + timeout_s
        while self.acknowledged < wanted:
            assert time.monotonic() < deadline, "commits are not acknowledged any more"
            time.sleep(0.005)

    def join(self) -> int:
        """Wait until the connection is broken. Return the last acknowledged position."""
        self._thread.join()
        return self.acknowledged


class Survivor:
    """A member of a group, dynamic or static, that survives all kills and commits only positions that it has
    recorded.
    """

    def __init__(self, bootstrap: str, topic: str, seen: set[tuple[int, int]], instance_id: str | None = None) -> None:
        self.read = 0
        self.fatal: KafkaError | None = None
        self._seen = seen
        self._topic = topic
        self._stopping = threading.Event()
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-survivors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            # A member that expires between two kills may be fenced, because the stored group has its former id. On a
            # busy machine half a minute may pass between two kills.
            "session.timeout.ms": 120_000,
            **IMPATIENT,
        }
        if instance_id is not None:
            self._settings["group.instance.id"] = instance_id
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            for message in consumer.consume(2_000, 0.1):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None:
                    self.fatal = error if error.fatal() else self.fatal
                elif partition is not None and offset is not None:
                    self._seen.add((partition, offset))
                    self.read += 1
            # Without a server and during a rebalance, a commit fails, and the records are read again.
            with contextlib.suppress(KafkaException):
                consumer.commit(asynchronous=True)
        consumer.close()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()


class Survivors:
    """A group of a dynamic and a static member. `seen` has the partition and offset of all records that they have
    read.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: set[tuple[int, int]] = set()
        self._members = [Survivor(bootstrap, topic, self.seen), Survivor(bootstrap, topic, self.seen, "static")]

    def wait_for_more(self, timeout_s: float = 60.0) -> None:
        """Wait until each member has read a record after this call."""
        before, deadline = [member.read for member in self._members], time.monotonic() + timeout_s
        while any(member.read == read for member, read in zip(self._members, before, strict=True)):
            assert time.monotonic() < deadline, f"of {before} a member reads no more"
            time.sleep(0.005)

    def wait_for(self, places: Set[tuple[int, int]], timeout_s: float = 60.0) -> None:
        """Wait until the group has read all these records. `timeout_s` is the longest time between two of them."""
        deadline, missing_before = time.monotonic() + timeout_s, len(places) + 1
        while missing := places - self.seen:
            if len(missing) < missing_before:
                deadline, missing_before = time.monotonic() + timeout_s, len(missing)
            assert time.monotonic() < deadline, f"the group has missed {len(missing)} records, e.g. {min(missing)}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End both members, which must not have been fenced."""
        for member in self._members:
            member.stop()
        assert [member.fatal for member in self._members] == [None, None]


class PlainLoad:
    """A producer of kafka-python without idempotence. Records that it sends again after a kill may be stored twice."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.refused = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=False,
            compression_type="gzip",
            linger_ms=5,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
        )
        number = 0
        while not self._stopping.wait(0.02):
            for _ in range(5):
                self._send(producer, number)
                number += 1
        producer.flush(timeout=60)
        producer.close(timeout=60)

    def _send(self, producer: Any, number: int) -> None:
        def delivered(metadata: Any) -> None:
            self.acknowledged[metadata.partition, metadata.offset] = number

        def refused(_error: Exception) -> None:
            self.refused += 1

        value = b"%010d" % number + b"," * RECORD_BYTES
        sent = producer.send(self._topic, value, partition=number % PARTITIONS)
        sent.add_callback(delivered).add_errback(refused)

    def stop(self) -> None:
        """Stop the producer. Return once all sent records are acknowledged or refused."""
        self._stopping.set()
        self._thread.join()


class Administrator:
    """A client that creates topics with configs and deletes some, on a raw connection until it breaks.

    `there` has the retention times of topics that must exist, and `gone` the names of topics that must not. The topic
    of a request without an answer is in neither.
    """

    def __init__(self, prefix: str) -> None:
        self.there: dict[str, str] = {}
        self.gone: set[str] = set()
        self.changes = 0
        self._prefix = prefix
        self._number = 0
        self._client: WireClient
        self._thread: threading.Thread

    def begin(self, port: int) -> None:
        """Connect to a started server."""
        self._client = WireClient(HOST, port)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._client:
            while True:
                self._create()
                if self._number % 2:
                    self._delete(next(iter(self.there)))
                time.sleep(0.02)

    def _create(self) -> None:
        self._number += 1
        name, retention_ms = f"{self._prefix}-{self._number}", str(1_000_000 + self._number)
        config = CreatableTopicConfig("retention.ms", retention_ms)
        answer = self._client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=[config])]), 5)
        if answer.topics[0].error_code == ErrorCode.NONE:
            self.there[name] = retention_ms
            self.changes += 1

    def _delete(self, name: str) -> None:
        del self.there[name]
        answer = self._client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
        if answer.responses[0].error_code == ErrorCode.NONE:
            self.gone.add(name)
            self.changes += 1

    def join(self) -> None:
        """Wait until the connection is broken."""
        self._thread.join()
