"""Starts instances of `java/StreamsApplication.java`, writes their input, and reads their committed output."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.interop.clients.java import java_command
from tests.interop.java_application import PARTITIONS, JavaApplication
from tests.peers.kafka_jars import classpath, streams
from tests.peers.server import Server
from tests.waiting import wait_until

SOURCE = Path(__file__).parent / "java" / "StreamsApplication.java"
PATIENCE_S = 120


class Input(NamedTuple):
    """A record of an input topic."""

    key: str
    value: str
    timestamp_ms: int


def compiled(folder: Path) -> str:
    """Return the class path of the application, without that of Kafka."""
    path = f"{streams()}:{classpath()}"
    subprocess.run(["javac", "-cp", path, "-d", folder, SOURCE], check=True, timeout=PATIENCE_S)
    return f"{folder}:{streams()}"


class StreamsApplication(JavaApplication):
    """An instance, with one state directory for its whole life. `settings` are further ones of Kafka Streams."""

    def __init__(
        self, server: Server, topic: str, classes: str, folder: Path, protocol: str, modes: str, *settings: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(f"{topic}-counts", folder / "application.log")
        arguments = [server.bootstrap, f"{topic}-app", topic, self.output, str(folder / "state"), protocol, modes]
        self._command = java_command("StreamsApplication", *arguments, *settings, classes=classes)

    def command(self) -> list[str]:
        return self._command

    def printed(self, *words: str) -> list[str]:
        """Return the printed lines that begin with one of these words."""
        return [line for line in self.log().splitlines() if line.startswith(words)]

    @property
    def states(self) -> list[str]:
        return [line for line in self.log().splitlines() if line.isupper() and " " not in line]

    def wait_until_running(self) -> None:
        wait_until(lambda: self.states[-1:] == ["RUNNING"], self.log(), within_s=PATIENCE_S)

    def found(self, word: str) -> str:
        """Return the application's count of a word, by an interactive query."""
        before = len(self.printed("FOUND"))
        self.tell(word)
        wait_until(lambda: len(self.printed("FOUND")) > before, self.log(), within_s=PATIENCE_S)
        return self.printed("FOUND")[before]


def produce(server: Server, topic: str, records: Iterable[Input]) -> None:
    """Produce each record once, even if the server is down for a while."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for each in records:
        producer.produce(topic, each.value, key=each.key, timestamp=each.timestamp_ms)
    assert producer.flush(PATIENCE_S) == 0


class Committed:
    """The committed records of topics, in their order for each key."""

    def __init__(self, server: Server, *topics: str) -> None:
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
        self._consumer = Consumer(settings)
        self._ends: set[tuple[str, int]] = set()
        places = [(topic, index) for topic in topics for index in range(PARTITIONS)]
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        self._places = set(places)
        self.found: dict[str, dict[str, list[bytes | None]]] = {topic: defaultdict(list) for topic in topics}

    def total(self) -> int:
        return sum(len(values) for keys in self.found.values() for values in keys.values())

    def read_until(self, is_enough: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        while not is_enough():
            assert time.monotonic() < deadline, (self.total(), dict(self.found))
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error, topic, key = message.error(), message.topic() or "", message.key() or b""
            place = topic, message.partition() or 0
            if error is None:
                self._ends.discard(place)
                self.found[topic][key.decode()].append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends.add(place)

    def read_to_end(self) -> None:
        self.read_until(lambda: self._ends == self._places)

    def close(self) -> None:
        self._consumer.close()


def committed(server: Server, *topics: str) -> dict[str, dict[str, list[bytes | None]]]:
    """Return all committed records up to the ends of the topics."""
    reader = Committed(server, *topics)
    try:
        reader.read_to_end()
    finally:
        reader.close()
    return {topic: dict(found) for topic, found in reader.found.items()}
