"""Kafka Streams on klamm: a word count that is exact although the application or the broker is killed.

With classic groups, and with streams groups (KIP-1071), whose tasks the server assigns.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.interop.clients.java import STREAMS_GROUP_COMMAND, java_command, run_tool
from tests.interop.java_application import JavaApplication, create_topics
from tests.peers.kafka_jars import classpath, streams
from tests.peers.server import Server
from tests.waiting import wait_until

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
    """An instance of the application, with one state directory for its whole life."""

    def __init__(self, server: Server, topic: str, classes: str, folder: Path, protocol: str, *instance: str) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(f"{topic}-counts", folder / "word-count.log")
        arguments = [server.bootstrap, f"{topic}-app", topic, self.output, str(folder / "state"), protocol, *instance]
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
def counts(server: Server, topic: str) -> Iterator[Counts]:
    """Reads what the application writes; its topics are there."""
    create_topics(server, topic, f"{topic}-counts")
    counts = Counts(server, f"{topic}-counts")
    yield counts
    counts.close()


@pytest.fixture
def start(server: Server, topic: str, classes: str, tmp_path: Path) -> Iterator[Callable[..., WordCount]]:
    """Starts an instance by the name of its directory."""
    started: list[WordCount] = []

    def start_one(name: str, protocol: str, *instance: str) -> WordCount:
        application = WordCount(server, topic, classes, tmp_path / name, protocol, *instance)
        application.start()
        started.append(application)
        return application

    yield start_one
    for each in started:
        each.kill9()
        # Shown where a test fails.
        print(each.states)


def check(counts: Counts, values: list[str]) -> None:
    """A count that came twice, or not at all, breaks the sequence of its word."""
    each = {word: sum(line.split().count(word) for line in values) for word in WORDS}
    assert counts.found == {word: [*range(1, number + 1)] for word, number in each.items()}


@pytest.mark.parametrize("killed", ["nothing", "application", "broker"])
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_each_word_is_counted_once(
    server: Server, topic: str, counts: Counts, start: Callable[..., WordCount], protocol: str, killed: str
) -> None:
    application = start("one", protocol)
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
    check(counts, values)
    assert application.states[-1] == "NOT_RUNNING"


def test_instances_come_and_go(server: Server, topic: str, counts: Counts, start: Callable[..., WordCount]) -> None:
    """One that stays for a while, a static one that stops and comes back, and one that is killed."""
    values = lines()
    wanted = 0

    def count(part: list[str]) -> None:
        nonlocal wanted
        wanted += 4 * len(part)
        produce(server, topic, part)
        counts.read_until(lambda: counts.total() >= wanted)

    def running(application: WordCount) -> WordCount:
        wait_until(lambda: application.states[-1:] == ["RUNNING"], application.log(), within_s=PATIENCE_S)
        return application

    first = running(start("one", "streams"))
    count(values[:75])
    static = running(start("two", "streams", "static-instance"))
    count(values[75:150])
    static.stop(PATIENCE_S)
    static.start()
    running(static)
    killed = running(start("three", "streams"))
    count(values[150:225])
    killed.kill9()
    first.stop(PATIENCE_S)
    count(values[225:])
    check(counts, values)
    shown = run_tool(STREAMS_GROUP_COMMAND, "--bootstrap-server", server.bootstrap, "--list", "--state")
    assert [f"{topic}-app", "Stable"] in [line.split() for line in shown.splitlines()]
