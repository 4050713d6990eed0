"""Tests of Apache Flink's connector: a copy is exact even if Flink or the broker is killed.

Flink commits with its checkpoints. After a kill, a new process continues the transactions of the last checkpoint by
their producer ids and epochs, commits them, and aborts later ones.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.interop.java_application import PARTITIONS, JavaApplication, create_topics
from tests.peers.kafka_jars import flink
from tests.peers.server import Server

# Flink and its libraries are 80 MB.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]
SOURCE = Path(__file__).parent / "java" / "FlinkCopy.java"
RECORDS = 3000
PATIENCE_S = 120


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the class path of the application. Kafka's client is the one for which Flink's connector was made."""
    folder = tmp_path_factory.mktemp("flink")
    subprocess.run(["javac", "-cp", flink(), "-d", folder, SOURCE], check=True, timeout=60)
    return f"{folder}:{flink()}"


class FlinkCopy(JavaApplication):
    """Flink, which starts from the last checkpoint."""

    def __init__(self, server: Server, topic: str, classes: str, folder: Path) -> None:
        super().__init__(f"{topic}-copy", folder / "flink.log")
        self._checkpoints = folder / "checkpoints"
        opened = ["--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        self._command = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512M", *opened, "-cp", classes]
        self._command += ["FlinkCopy", server.bootstrap, topic, self.output, self._checkpoints.as_uri()]

    def checkpoint(self) -> Path | None:
        """The last complete checkpoint."""
        complete = self._checkpoints.glob("*/chk-*/_metadata")
        last = max(complete, key=lambda path: path.stat().st_mtime_ns, default=None)
        return last.parent if last is not None else None

    def command(self) -> list[str]:
        checkpoint = self.checkpoint()
        return [*self._command, *([checkpoint.as_uri()] if checkpoint is not None else [])]

    def log(self) -> str:
        return super().log()[-8000:]


def produce(server: Server, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, str(number))
    assert producer.flush(PATIENCE_S) == 0


class Copied:
    """The committed records of the output."""

    def __init__(self, server: Server, topic: str, group: str = "reader") -> None:
        settings: dict[str, object] = {"bootstrap.servers": server.bootstrap, "group.id": f"{topic}-{group}"}
        settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self.found: Counter[int] = Counter()
        self.ended: set[int] = set()

    def read_until(self, is_enough: Callable[[], bool], problem: Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_enough():
            assert time.monotonic() < deadline, f"{len(self.found)} of the records were copied\n{problem()}"
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.found[int(message.value() or b"")] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ended.add(message.partition() or 0)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def copied(server: Server, topic: str, classes: str, tmp_path: Path) -> Iterator[tuple[FlinkCopy, Copied]]:
    application = FlinkCopy(server, topic, classes, tmp_path)
    create_topics(server, topic, application.output)
    application.start()
    records = Copied(server, application.output)
    yield application, records
    records.close()
    application.kill9()


@pytest.mark.parametrize("killed", ["nothing", "application", "broker"])
def test_each_record_is_copied_once(server: Server, topic: str, copied: tuple[FlinkCopy, Copied], killed: str) -> None:
    application, records = copied
    produce(server, topic, range(RECORDS // 3))
    records.read_until(lambda: len(records.found) >= RECORDS // 6, application.log)
    produce(server, topic, range(RECORDS // 3, RECORDS * 2 // 3))
    if killed == "application":
        application.kill9()
        application.start()
    elif killed == "broker":
        server.kill9()
        server.start()
    produce(server, topic, range(RECORDS * 2 // 3, RECORDS))
    records.read_until(lambda: len(records.found) == RECORDS, application.log)
    application.stop(PATIENCE_S)
    everything = Copied(server, application.output, group="everything")
    everything.read_until(lambda: len(everything.ended) == PARTITIONS, application.log)
    everything.close()
    assert everything.found == Counter(range(RECORDS))
