"""klamm's TLS listener beside Apache Kafka's: `python -m bench.tls [--rounds 5] [--seconds 3]`.

Each server has a plaintext and a TLS listener for the same broker, and both servers show the same certificate. The load
comes from librdkafka (confluent-kafka): a producer of 1 KiB records with its default batches of up to 1 MB and
acks=all, and a consumer that reads the records again. Servers and listeners take turns; only ratios within one run are
meaningful.

The client takes as much of the machine as the server. So there is a second row for each throughput: the server's
processor time per megabyte. In both rows, a ratio above 1 means that klamm is better.
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
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers import SETTINGS, cpu_seconds
from bench.suites import touch_memory
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST, Server, free_port
from tests.tls_files import TlsFiles

RECORD = os.urandom(1024)
PARTITIONS = 3
_topics = count(1)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener: the client's settings for it, and the topic that `fetch` reads."""

    name: str
    client: dict[str, Any]
    topic: str
    server: Server


class Result(NamedTuple):
    """The result of one round: the transferred bytes, and the server's processor time."""

    mb_per_s: float
    cpu_ms_per_mb: float


def measure(what: str, endpoint: Endpoint, seconds: float) -> Result:
    """Measure one round. `what` is "produce" or "fetch"."""
    topic = f"produced-{next(_topics)}"
    if what == "produce":
        make_topic(endpoint, topic)
    touch_memory()
    before_s = cpu_seconds(endpoint.server)
    megabytes, taken_s = produce(endpoint, seconds, topic) if what == "produce" else fetch(endpoint, seconds)
    cpu_s = cpu_seconds(endpoint.server) - before_s
    if what == "produce":
        delete_topic(endpoint, topic)
    return Result(megabytes / taken_s, cpu_s * 1000 / megabytes)


def produce(endpoint: Endpoint, seconds: float, topic: str) -> tuple[float, float]:
    """Return the megabytes of acknowledged values, and the seconds until the last acknowledgment."""
    delivered = 0

    def note(error: Any, _message: Any) -> None:
        nonlocal delivered
        if error is not None:
            raise KafkaException(error)
        delivered += 1

    producer = Producer(endpoint.client | {"acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 200_000})
    started = time.perf_counter()
    number = 0
    while time.perf_counter() - started < seconds:
        for _ in range(1000):
            try:
                producer.produce(topic, RECORD, partition=number % PARTITIONS, on_delivery=note)
                number += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    return delivered * len(RECORD) / 1e6, time.perf_counter() - started


def fetch(endpoint: Endpoint, seconds: float) -> tuple[float, float]:
    """Read the topic from the beginning, as often as there is time. Return the megabytes of values, and the seconds."""
    consumer = Consumer(
        endpoint.client | {"group.id": "bench", "enable.auto.commit": False, "queued.min.messages": 100_000}
    )
    beginning = [TopicPartition(endpoint.topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
    ends = sum(
        consumer.get_watermark_offsets(TopicPartition(endpoint.topic, p), timeout=10)[1] for p in range(PARTITIONS)
    )
    consumer.assign(beginning)
    started = time.perf_counter()
    read = of_this_pass = 0
    while time.perf_counter() - started < seconds:
        messages = consumer.consume(10_000, 0.2)
        read += len(messages)
        of_this_pass += len(messages)
        if of_this_pass >= ends:
            of_this_pass = 0
            consumer.assign(beginning)
    taken = time.perf_counter() - started
    consumer.close()
    return read * len(RECORD) / 1e6, taken


def make_topic(endpoint: Endpoint, name: str) -> None:
    """Create a topic with `PARTITIONS` partitions."""
    admin = AdminClient(endpoint.client)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)


def delete_topic(endpoint: Endpoint, name: str) -> None:
    """Delete a round's topic, so that its records do not burden the disk during the next round."""
    admin = AdminClient(endpoint.client)
    admin.delete_topics([name])[name].result(30)


@contextmanager
def endpoints(folder: Path) -> Iterator[list[Endpoint]]:
    """Run both servers, and yield the two listeners of each."""
    files = TlsFiles(folder / "tls")
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(files.ca)}
    with ExitStack() as stack:
        found: list[Endpoint] = []
        for name in ("klamm", "kafka"):
            port = free_port()
            server = _klamm(folder, files, port) if name == "klamm" else kafka_with_tls(folder, files, port)
            stack.enter_context(server)
            for kind, address, security in (("plaintext", server.port, {}), ("TLS", port, tls)):
                client = {"bootstrap.servers": f"{HOST}:{address}"} | security
                found.append(Endpoint(f"{name} {kind}", client, f"read-{kind}", server))
        for endpoint in found:
            make_topic(endpoint, endpoint.topic)
            produce(endpoint, 1.0, endpoint.topic)
        yield found


def _klamm(folder: Path, files: TlsFiles, port: int) -> Server:
    listener = dict(text.split("=", 1) for text in files.server_settings("tls"))
    return KlammServer(folder / "klamm", SETTINGS | {"listeners.tls.bind": f"{HOST}:{port}"} | listener)


def kafka_with_tls(folder: Path, files: TlsFiles, port: int) -> Server:
    """Return a Kafka with a second listener, with TLS, on this port."""
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
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder, endpoints(Path(folder)) as found:
        print("| | | klamm | Apache Kafka | klamm : Kafka |\n| --- | --- | --- | --- | --- |", flush=True)
        for what in ("produce", "fetch"):
            results: dict[str, list[Result]] = {endpoint.name: [] for endpoint in found}
            for number in range(chosen.rounds):
                for endpoint in found if number % 2 == 0 else reversed(found):
                    results[endpoint.name].append(measure(what, endpoint, chosen.seconds))
            for kind in ("plaintext", "TLS"):
                klamm, kafka = results[f"klamm {kind}"], results[f"kafka {kind}"]
                _print_row(f"{what}, {kind} | MB/s", [r.mb_per_s for r in klamm], [r.mb_per_s for r in kafka], ".0f")
                ours, theirs = [r.cpu_ms_per_mb for r in klamm], [r.cpu_ms_per_mb for r in kafka]
                _print_row(f"{what}, {kind} | ms/MB of the server's CPU", ours, theirs, ".2f", less_is_better=True)


def _print_row(
    what: str, klamm: Sequence[float], kafka: Sequence[float], form: str, *, less_is_better: bool = False
) -> None:
    cells = [f"{median(each):{form}} ({min(each):{form}}–{max(each):{form}})" for each in (klamm, kafka)]
    ratio = median(klamm) / median(kafka)
    print(f"| {what} | {' | '.join(cells)} | {1 / ratio if less_is_better else ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
