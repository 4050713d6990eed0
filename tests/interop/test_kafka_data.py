"""Tests with Apache Kafka: both servers' descriptions, and a data directory that moves from one server to the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.testing import EmbeddedServer, RawClient
from tests.interop.beside_kafka.descriptions import differences, explained, facts, is_listed
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]
TOPIC = "t"
DEVIATIONS = Path(__file__).resolve().parents[2] / "docs" / "deviations.md"


def produce(bootstrap: str, prefix: str, **settings: object) -> None:
    """Produce ten records, in one batch each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for number in range(10):
        producer.produce(TOPIC, value=f"{prefix}{number}", partition=0)
        assert producer.flush(30) == 0


def transactions(bootstrap: str) -> None:
    """Run one transaction that commits, and one that aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(60)
    for prefix in ("committed", "aborted"):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(TOPIC, value=f"{prefix}{number}", partition=0)
        producer.flush(30)
        (producer.commit_transaction if prefix == "committed" else producer.abort_transaction)(60)


def consumed(bootstrap: str, isolation: str) -> list[str]:
    """Return all records in order, up to the end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message.value().decode())
    consumer.close()
    return found


def texts(*prefixes: str) -> list[str]:
    return [f"{prefix}{number}" for prefix in prefixes for number in range(10)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    # With small segments there are several producer snapshots, time indexes and transaction indexes.
    with KafkaServer(tmp_path_factory.mktemp("kafka"), {"log.segment.bytes": str(1 << 20)}) as server:
        yield server


def test_descriptions_of_klamm_differ_from_kafka_as_documented(kafka: KafkaServer) -> None:
    with EmbeddedServer() as klamm, RawClient(klamm.address()) as client:
        ours = facts(client)
    with RawClient((HOST, kafka.port), timeout_s=60) as client:
        theirs = facts(client)
    assert len(theirs) > 400
    page = DEVIATIONS.read_text("utf-8")
    configs = page.partition("## Broker configs that klamm does not have")[2]
    found = {key: value for key, value in differences(theirs, ours).items() if not is_listed(key, configs)}
    assert found == explained(page)


def test_data_moves_from_kafka_to_klamm_and_back(tmp_path: Path, kafka: KafkaServer) -> None:
    topic = NewTopic(TOPIC, 1, 1, config={"segment.ms": "10", "compression.type": "producer"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([topic])[TOPIC].result(30)
    produce(kafka.bootstrap, "zstd", **{"enable.idempotence": True, "compression.type": "zstd"})
    transactions(kafka.bootstrap)
    produce(kafka.bootstrap, "lz4", **{"compression.type": "lz4"})
    kafka.stop()
    assert len(list((kafka.data_dir / f"{TOPIC}-0").glob("*.snapshot"))) > 1
    klamm = KlammServer(tmp_path / "klamm")
    shutil.copytree(kafka.data_dir, klamm.data_dir)
    with klamm:
        committed = texts("zstd", "committed", "lz4")
        assert consumed(klamm.bootstrap, "read_committed") == committed
        assert consumed(klamm.bootstrap, "read_uncommitted") == texts("zstd", "committed", "aborted", "lz4")
        produce(klamm.bootstrap, "klamm", **{"enable.idempotence": True, "compression.type": "gzip"})
        assert consumed(klamm.bootstrap, "read_committed") == [*committed, *texts("klamm")]
    partition = kafka.data_dir / f"{TOPIC}-0"
    shutil.rmtree(partition)
    shutil.copytree(klamm.data_dir / f"{TOPIC}-0", partition)
    kafka.start()
    assert consumed(kafka.bootstrap, "read_committed") == [*committed, *texts("klamm")]
    produce(kafka.bootstrap, "kafka", **{"enable.idempotence": True})
    assert consumed(kafka.bootstrap, "read_committed") == [*committed, *texts("klamm", "kafka")]
