"""A data directory that goes from Apache Kafka to klamm and back: each opens what the other wrote, and goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]
TOPIC = "t"


def produce(bootstrap: str, prefix: str, **settings: object) -> None:
    """Ten records, one batch each."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **settings})
    for number in range(10):
        producer.produce(TOPIC, value=f"{prefix}{number}", partition=0)
        assert producer.flush(30) == 0


def transactions(bootstrap: str) -> None:
    """One that is committed, and one that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(60)
    for prefix in ("committed", "aborted"):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(TOPIC, value=f"{prefix}{number}", partition=0)
        producer.flush(30)
        (producer.commit_transaction if prefix == "committed" else producer.abort_transaction)(60)


def consumed(bootstrap: str, isolation: str) -> list[str]:
    """Everything, in order, up to the end."""
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


def test_from_kafka_to_klamm_and_back(tmp_path: Path) -> None:
    # Small segments: producer snapshots, time indexes and transaction indexes are there more than once.
    kafka = KafkaServer(tmp_path / "kafka", {"log.segment.bytes": str(1 << 20)})
    with kafka:
        topic = NewTopic(TOPIC, 1, 1, config={"segment.ms": "10", "compression.type": "producer"})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([topic])[TOPIC].result(30)
        produce(kafka.bootstrap, "zstd", **{"enable.idempotence": True, "compression.type": "zstd"})
        transactions(kafka.bootstrap)
        produce(kafka.bootstrap, "lz4", **{"compression.type": "lz4"})
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
    with kafka:
        assert consumed(kafka.bootstrap, "read_committed") == [*committed, *texts("klamm")]
        produce(kafka.bootstrap, "kafka", **{"enable.idempotence": True})
        assert consumed(kafka.bootstrap, "read_committed") == [*committed, *texts("klamm", "kafka")]
