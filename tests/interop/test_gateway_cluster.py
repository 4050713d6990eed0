"""Tests of a gateway before three brokers of Apache Kafka, which restart, move leaders, and stop answering, under load.

Each application runs twice at the same time, directly on the brokers and through the gateway, so both meet the same
events. No acknowledged record is lost. No application gets an error through the gateway that it does not get without.
All applications recover without help, also after the gateway is killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import kafka
import pytest
from kafka import TopicPartition

from tests.interop.test_nodes import PARTITIONS, PATIENCE_S, Aiokafka, Application, Confluent, Java, KafkaPython
from tests.peers.gateway_server import gateway_before
from tests.peers.kafka_cluster import NODE_IDS, KafkaCluster
from tests.peers.klamm_server import KlammServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

STOPPED_S = 30
RECORDS_BETWEEN_STEPS = 50
RECOVERY_S = 2 * PATIENCE_S


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster(tmp_path / "kafka") as running:
        yield running


@pytest.fixture
def gateway(cluster: KafkaCluster, tmp_path: Path) -> Iterator[KlammServer]:
    with gateway_before(cluster, tmp_path / "gateway") as running:
        yield running


class Workload:
    """An application, once without the gateway and once through it. Each has its own topic and group."""

    def __init__(self, cluster: KafkaCluster, gateway: KlammServer, kind: type[Application]) -> None:
        def make(bootstrap: str, name: str) -> Application:
            cluster.create_topic(name, PARTITIONS)
            return kind(bootstrap, name, f"group-{name}")

        self.direct = make(cluster.bootstrap, "direct")
        self.forwarded = make(gateway.bootstrap, "forwarded")
        self.all = [self.direct, self.forwarded]

    def start(self) -> None:
        for application in self.all:
            application.start()
        self.flows("the start")

    def flows(self, after: str) -> None:
        """Check that each application gets further records acknowledged, and reads further records."""
        written = {each: len(each.acknowledged) + RECORDS_BETWEEN_STEPS for each in self.all}
        read = {each: len(each.consumed) + RECORDS_BETWEEN_STEPS for each in self.all}

        def late() -> list[str]:
            return [
                each.topic
                for each in self.all
                if not each.errors and (len(each.acknowledged) < written[each] or len(each.consumed) < read[each])
            ]

        deadline = time.monotonic() + RECOVERY_S
        while waiting := late():
            assert time.monotonic() < deadline, f"after {after}: {waiting} stand still"
            time.sleep(0.1)

    def finish(self) -> None:
        """Check that each application reads all records that it has written. All finish at the same time."""
        finishing = [threading.Thread(target=each.finish, daemon=True) for each in self.all]
        for thread in finishing:
            thread.start()
        for thread in finishing:
            thread.join(4 * PATIENCE_S)


def values_in(bootstrap: str, topic: str) -> list[str]:
    """Return every value of a topic, as a consumer without a group reads it."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), auto_offset_reset="earliest")
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    values: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while any(consumer.position(each) < end for each, end in ends.items()):
        assert time.monotonic() < deadline, f"{topic} cannot be read"
        for records in consumer.poll(500).values():
            values.extend(record.value.decode() for record in records)
    consumer.close()
    return values


def rolling_restart(cluster: KafkaCluster) -> None:
    for node_id in NODE_IDS:
        cluster.nodes.stop(node_id)
        cluster.nodes.start(node_id)


def leader_moves(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    for number, topic in enumerate(topics):
        for index in range(2):
            cluster.nodes.move_leader(topic, index, NODE_IDS[(number + index) % len(NODE_IDS)])
    for number in range(2):
        cluster.nodes.move_coordinator("", NODE_IDS[number])


def node_stops_answering(cluster: KafkaCluster) -> None:
    cluster.nodes.pause(NODE_IDS[0])
    try:
        # This is the length of the outage that is tested.
        time.sleep(STOPPED_S)
    finally:
        cluster.nodes.resume(NODE_IDS[0])


def kill(gateway: KlammServer) -> None:
    gateway.kill9()
    gateway.start()


@pytest.mark.parametrize("kind", [Confluent, KafkaPython, Aiokafka, Java], ids=lambda kind: kind.__name__)
def test_applications_lose_no_more_than_without_the_gateway(
    cluster: KafkaCluster, gateway: KlammServer, kind: type[Application]
) -> None:
    work = Workload(cluster, gateway, kind)
    steps: list[tuple[str, Callable[[], None]]] = [
        ("a rolling restart", lambda: rolling_restart(cluster)),
        ("moves of leaders", lambda: leader_moves(cluster, [each.topic for each in work.all])),
        (f"{STOPPED_S} s without an answer of a node", lambda: node_stops_answering(cluster)),
        ("a killed gateway", lambda: kill(gateway)),
    ]
    try:
        work.start()
        for what, step in steps:
            step()
            work.flows(what)
    finally:
        work.finish()
    for each in work.all:
        found = values_in(cluster.bootstrap, each.topic)
        print(
            f"{kind.__name__} {each.topic}: {len(each.acknowledged)} acknowledged, {len(each.consumed)} read,"
            f" {len(found)} in the log, {len(each.errors)} errors"
        )
        assert {*each.acknowledged} - {*found} == set(), each.topic
        assert {*each.acknowledged} - each.consumed == set(), each.topic
    assert len(work.forwarded.errors) <= len(work.direct.errors), work.forwarded.errors[:5]
