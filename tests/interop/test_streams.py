"""Kafka Streams on klamm: a word count that is exact although the application or the broker is killed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.interop.clients.java import java_command
from tests.interop.java_application import JavaApplication, create_topics
from tests.peers.kafka_jars import classpath, streams
from tests.peers.server import Server

# Streams comes with a database of 75 MB.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]
SOURCE = Path(__file__).parent / "java" / "WordCount.java"
WORDS = ["heron", "otter", "perch", "reed", "rush", "teal", "vole"]
LINES = 300
PATIENCE_S = 90


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of the application, beside that of Kafka."""
    folder = tmp_path_factory.mktemp("word-count")
    path = f"{streams()}:{classpath()}"
    subprocess.run(["javac", "-cp", path, "-d", folder, SOURCE], check=True, timeout=60)
    return f"{folder}:{streams()}"


class WordCount(JavaApplication):
    """The application, with one state directory for its whole life."""

    def __init__(self, server: Server, topic: str, classes: str, folder: Path) -> None:
        super().__init__(f"{topic}-counts", folder / "word-count.log")
        arguments = [server.bootstrap, f"{topic}-app", topic, self.output, str(folder / "state")]
        self._command = java_command("WordCount", *arguments, classes=classes)

    def command(self) -> list[str]:
        return self._command

    @property
    def states(self) -> list[str]:
        return self.log().split()


def lines() -> list[str]:
    """Each word occurs as often as any other, and no line is like the one before it."""
    return [" ".join(WORDS[(number + each) % len(WORDS)] for each in range(4)) for number in range(LINES)]


def produce(server: Server, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=str(number))
    assert producer.flush(PATIENCE_S) == 0


class Counts:
    """The committed records of the output, by word."""

    def __init__(self, server: Server, topic: str) -> None:
        settings = {"bootstrap.servers": server.bootstrap, "group.id": f"{topic}-reader"}
        settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self.found: dict[str, list[int]] = {word: [] for word in WORDS}

    def total(self) -> int:
        return sum(map(len, self.found.values()))

    def read_until(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_enough():
            assert time.monotonic() < deadline, {word: counts[-3:] for word, counts in self.found.items()}
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.found[message.key().decode()].append(int.from_bytes(message.value(), "big"))

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def counted(server: Server, topic: str, classes: str, tmp_path: Path) -> Iterator[tuple[WordCount, Counts]]:
    application = WordCount(server, topic, classes, tmp_path)
    create_topics(server, topic, application.output)
    application.start()
    counts = Counts(server, application.output)
    yield application, counts
    counts.close()
    application.kill9()
    # Shown where a test fails.
    print(application.states)


@pytest.mark.parametrize("killed", ["nothing", "application", "broker"])
def test_each_word_is_counted_once(server: Server, topic: str, counted: tuple[WordCount, Counts], killed: str) -> None:
    application, counts = counted
    values = lines()
    produce(server, topic, values[: LINES // 2])
    counts.read_until(lambda: counts.total() >= LINES)
    produce(server, topic, values[LINES // 2 :])
    if killed == "application":
        application.kill9()
        application.start()
    elif killed == "broker":
        server.kill9()
        server.start()
    counts.read_until(lambda: counts.total() >= 4 * LINES)
    application.stop(PATIENCE_S)
    each = {word: sum(line.split().count(word) for line in values) for word in WORDS}
    # A count that came twice, or not at all, breaks the sequence of its word.
    assert counts.found == {word: [*range(1, number + 1)] for word, number in each.items()}
    assert application.states[-1] == "NOT_RUNNING"
