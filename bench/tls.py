"""klamm's TLS listener beside Apache Kafka's: `python -m bench.tls [--rounds 5] [--seconds 3]`.

Each server has a plaintext and a TLS listener over the same broker and shows the same certificate. The load comes from
librdkafka (confluent-kafka): a producer of 1 KiB records with its default batches of up to 1 MB and acks=all, a
consumer that reads them again. Servers and listeners take turns; only the ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers import SETTINGS
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server, free_port
from tests.tls_files import TlsFiles

RECORD = os.urandom(1024)
PARTITIONS = 3
_topics = count(1)


@dataclass(frozen=True, slots=True)
class Door:
    """A listener: the client's settings for it, and the topic that is read there."""

    name: str
    client: dict[str, Any]
    topic: str


def produce(door: Door, seconds: float, topic: str) -> float:
    """Megabytes of acknowledged values a second."""
    delivered = 0

    def note(error: Any, _message: Any) -> None:
        nonlocal delivered
        if error is not None:
            raise KafkaException(error)
        delivered += 1

    producer = Producer(door.client | {"acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 200_000})
    begun = time.perf_counter()
    number = 0
    while time.perf_counter() - begun < seconds:
        for _ in range(1000):
            try:
                producer.produce(topic, RECORD, partition=number % PARTITIONS, on_delivery=note)
                number += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    return delivered * len(RECORD) / 1e6 / (time.perf_counter() - begun)


def fetch(door: Door, seconds: float) -> float:
    """Megabytes of values a second, read from the beginning as often as there is time."""
    consumer = Consumer(
        door.client | {"group.id": "bench", "enable.auto.commit": False, "queued.min.messages": 100_000}
    )
    beginning = [TopicPartition(door.topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
    ends = sum(consumer.get_watermark_offsets(TopicPartition(door.topic, p), timeout=10)[1] for p in range(PARTITIONS))
    consumer.assign(beginning)
    begun = time.perf_counter()
    read = of_this_pass = 0
    while time.perf_counter() - begun < seconds:
        messages = consumer.consume(10_000, 0.2)
        read += len(messages)
        of_this_pass += len(messages)
        if of_this_pass >= ends:
            of_this_pass = 0
            consumer.assign(beginning)
    taken = time.perf_counter() - begun
    consumer.close()
    return read * len(RECORD) / 1e6 / taken


def make_topic(door: Door, name: str) -> None:
    """With `PARTITIONS` partitions."""
    admin = AdminClient(door.client)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)


def delete_topic(door: Door, name: str) -> None:
    """What one round has written is not to weigh on the disk during the next."""
    admin = AdminClient(door.client)
    admin.delete_topics([name])[name].result(30)


@contextmanager
def doors(folder: Path) -> Iterator[list[Door]]:
    """Both servers, each with two listeners."""
    files = TlsFiles(folder / "tls")
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(files.ca)}
    with ExitStack() as stack:
        found: list[Door] = []
        for name in ("klamm", "kafka"):
            port = free_port()
            server = _klamm(folder, files, port) if name == "klamm" else _kafka(folder, files, port)
            stack.enter_context(server)
            for kind, address, security in (("plaintext", server.port, {}), ("TLS", port, tls)):
                client = {"bootstrap.servers": f"{HOST}:{address}"} | security
                found.append(Door(f"{name} {kind}", client, f"read-{kind}"))
        for door in found:
            make_topic(door, door.topic)
            produce(door, 1.0, door.topic)
        yield found


def _klamm(folder: Path, files: TlsFiles, port: int) -> Server:
    listener = dict(text.split("=", 1) for text in files.server_settings("tls"))
    return KlammServer(folder / "klamm", SETTINGS | {"listeners.tls.bind": f"{HOST}:{port}"} | listener)


def _kafka(folder: Path, files: TlsFiles, port: int) -> Server:
    server = KafkaServer(folder / "kafka", SETTINGS)
    listeners = f"PLAINTEXT://{HOST}:{server.port},SSL://{HOST}:{port}"
    server.settings |= {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{server.controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server.both),
    }
    return server


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tls", description="klamm's TLS listener beside Apache Kafka's"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, doors(Path(folder)) as found:
        print("| MB/s | klamm | Apache Kafka | klamm : Kafka |\n| --- | --- | --- | --- |", flush=True)
        for what in ("produce", "fetch"):
            results: dict[str, list[float]] = {door.name: [] for door in found}
            for _ in range(chosen.rounds):
                for door in found:
                    if what == "fetch":
                        results[door.name].append(fetch(door, chosen.seconds))
                        continue
                    topic = f"produced-{next(_topics)}"
                    make_topic(door, topic)
                    results[door.name].append(produce(door, chosen.seconds, topic))
                    delete_topic(door, topic)
            for kind in ("plaintext", "TLS"):
                pair = [results[f"{name} {kind}"] for name in ("klamm", "kafka")]
                cells = [f"{median(each):,.0f} ({min(each):,.0f}–{max(each):,.0f})" for each in pair]
                print(f"| {what}, {kind} | {' | '.join(cells)} | {median(pair[0]) / median(pair[1]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
