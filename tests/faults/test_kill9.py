"""Fifty times `kill -9` under load: what was acknowledged is there, once, in order, and so are committed offsets.

A group reads on through all of it, and misses nothing.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Set
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.peers.server import HOST, Server
from tests.peers.target import TARGET, target_server
from tests.peers.wire_client import WireClient

pytestmark = [pytest.mark.faults, pytest.mark.interop, pytest.mark.timeout(600)]
ROUNDS = 50 if TARGET == "klamm" else 5
"""Apache Kafka, which is here to judge the test, takes up to ten seconds to come back."""
LONGEST_LIFE_S = 1.0
TOPIC = "killed"
GROUP = "killed-group"
PARTITIONS = 3
RECORD_BYTES = 400
MOST_UNACKNOWLEDGED = 20_000
SETTINGS = {"log.segment.bytes": str(1 << 20), "group.initial.rebalance.delay.ms": "0"}
IMPATIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 1}


class Load:
    """A producer that never stops, and a note of everything that was acknowledged to it."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        """The number of the record at each partition and offset."""
        self.refused: list[KafkaError] = []
        self._bootstrap = bootstrap
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
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1, **IMPATIENT}
        )
        number = 0
        while not self._stopping.wait(0.002):
            producer.poll(0)
            if len(producer) > MOST_UNACKNOWLEDGED:
                continue
            for _ in range(10):
                producer.produce(
                    TOPIC,
                    b"%010d" % number + b"." * RECORD_BYTES,
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
        producer.flush(60)

    def wait_for_more(self, timeout_s: float = 60.0) -> None:
        """Until something is acknowledged that was not when this was called."""
        before, deadline = len(self.acknowledged), time.monotonic() + timeout_s
        while len(self.acknowledged) == before:
            assert not self.refused, self.refused[0]
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            time.sleep(0.005)

    def stop(self) -> None:
        """Return when everything sent is acknowledged or refused."""
        self._stopping.set()
        self._thread.join()


class Committer:
    """Commits ever higher positions for a group until its connection breaks, and remembers how far it came.

    A raw connection on purpose: a client that tries again would hide a loss by its next commit.
    """

    def __init__(self, port: int, first: int) -> None:
        self.acknowledged = first
        self._client = WireClient(HOST, port)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._client:
            self._client.call(FindCoordinatorRequest(key=GROUP), 2)
            while True:
                self._commit(self.acknowledged + 1)
                time.sleep(0.005)

    def _commit(self, position: int) -> None:
        partitions = [OffsetCommitRequestPartition(p, committed_offset=position) for p in range(PARTITIONS)]
        request = OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(TOPIC, partitions=partitions)])
        answer = self._client.call(request, 8)
        if all(partition.error_code == 0 for partition in answer.topics[0].partitions):
            self.acknowledged = position

    def wait_for_more(self, timeout_s: float = 30.0) -> None:
        """Until it has committed twice more."""
        wanted, deadline = self.acknowledged + 2, time.monotonic() + timeout_s
        while self.acknowledged < wanted:
            assert time.monotonic() < deadline, "commits are not acknowledged any more"
            time.sleep(0.005)

    def join(self) -> int:
        """The last acknowledged position, once the connection is broken."""
        self._thread.join()
        return self.acknowledged


class Survivor:
    """A member of a group, dynamic or static, that lives through all deaths and commits only what it has noted."""

    def __init__(self, bootstrap: str, seen: set[tuple[int, int]], instance_id: str | None = None) -> None:
        self.read = 0
        self.fatal: KafkaError | None = None
        self._seen = seen
        self._stopping = threading.Event()
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": "survivors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6000,
            **IMPATIENT,
        }
        if instance_id is not None:
            self._settings["group.instance.id"] = instance_id
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            for message in consumer.consume(2_000, 0.1):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None:
                    self.fatal = error if error.fatal() else self.fatal
                elif partition is not None and offset is not None:
                    self._seen.add((partition, offset))
                    self.read += 1
            # Without a server or in a rebalance there is nothing to commit to; what was read is read again then.
            with contextlib.suppress(KafkaException):
                consumer.commit(asynchronous=True)
        consumer.close()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()


class Survivors:
    """A group of a dynamic and a static member. `seen` are the places of all records that they have read."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: set[tuple[int, int]] = set()
        self._members = [Survivor(bootstrap, self.seen), Survivor(bootstrap, self.seen, "static")]

    def wait_for_more(self, timeout_s: float = 60.0) -> None:
        """Until each member has read something that it had not when this was called."""
        before, deadline = [member.read for member in self._members], time.monotonic() + timeout_s
        while any(member.read == read for member, read in zip(self._members, before, strict=True)):
            assert time.monotonic() < deadline, f"of {before} a member reads no more"
            time.sleep(0.005)

    def wait_for(self, places: Set[tuple[int, int]], timeout_s: float = 60.0) -> None:
        """Until the group has read all these."""
        deadline = time.monotonic() + timeout_s
        while missing := places - self.seen:
            assert time.monotonic() < deadline, f"the group has missed {len(missing)} records, e.g. {min(missing)}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End both members, which must not have been fenced."""
        for member in self._members:
            member.stop()
        assert [member.fatal for member in self._members] == [None, None]


def _positions(bootstrap: str) -> list[int]:
    """What the group has committed, by partition; -1001 for nothing. Apache Kafka needs some time to find out."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **IMPATIENT})
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    deadline = time.monotonic() + 30
    while True:
        try:
            found = consumer.committed(partitions, timeout=10)
            break
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
    consumer.close()
    return [position.offset for position in found]


def _read_all(bootstrap: str) -> dict[tuple[int, int], int]:
    """The whole topic, as `Load.acknowledged`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in range(PARTITIONS)]
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + 60
    while len(found) < sum(ends):
        assert time.monotonic() < deadline, f"{len(found)} of {sum(ends)} records can be read"
        for message in consumer.consume(10_000, 0.2):
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes), message.error()
            found[partition, offset] = int(value[:10])
    consumer.close()
    return found


def _kill_again_and_again(server: Server, load: Load, survivors: Survivors, moments: random.Random) -> None:
    position = 0
    for _ in range(ROUNDS):
        committer = Committer(server.port, position)
        load.wait_for_more()
        survivors.wait_for_more()
        committer.wait_for_more()
        time.sleep(moments.uniform(0, LONGEST_LIFE_S))
        server.kill9()
        position = committer.join()
        server.start()
        assert min(_positions(server.bootstrap)) >= position, "a committed position is lost"


def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    with target_server(tmp_path / "server", SETTINGS) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        load, survivors = Load(server.bootstrap), Survivors(server.bootstrap)
        try:
            _kill_again_and_again(server, load, survivors, random.Random(seed))
            load.stop()
            survivors.wait_for(load.acknowledged.keys())
        finally:
            load.stop()
            survivors.stop()
        assert not load.refused, load.refused[0]
        found = _read_all(server.bootstrap)
        lost = {place for place, number in load.acknowledged.items() if found.get(place) != number}
        assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged records are not in their place"
        for partition in range(PARTITIONS):
            numbers = [found[place] for place in sorted(found) if place[0] == partition]
            assert numbers == sorted(set(numbers)), f"partition {partition} has records twice or out of order"
