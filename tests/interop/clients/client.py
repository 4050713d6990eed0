"""What every client can do in these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tests.interop.records import Consumed, Record

SESSION_TIMEOUT_MS = 6000
"""The shortest that Kafka's defaults allow, so that a killed consumer is missed soon."""
ROOT = Path(__file__).resolve().parents[3]


class Client(Protocol):
    """A Kafka client, driven through its usual API or its command line."""

    name: str
    idempotent: bool
    """Whether its producer never leaves a record twice in the log."""

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Return when the topic has its partitions."""
        ...

    def produce_all(self, bootstrap: str, topic: str, records: Iterable[Record], compression: str) -> None:
        """acks=all. Return when every record is acknowledged; raise when one cannot be."""
        ...

    def consume_all(self, bootstrap: str, topic: str) -> list[Consumed]:
        """From the beginning to where each partition ends now, without a group."""
        ...

    def worker_command(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """A program that consumes in a group until SIGTERM, and writes each record as a line before it commits it."""
        ...


def format_line(record: Consumed) -> str:
    return "\t".join(map(str, record)) + "\n"


def parse_lines(lines: Iterable[str]) -> list[Consumed]:
    """The records of whole lines; a last one that was cut off is left out."""
    fields = (line.rstrip("\n").split("\t") for line in lines if line.endswith("\n"))
    return [Consumed(int(partition), int(offset), key, value) for partition, offset, key, value in fields]


def python_worker(module: str, bootstrap: str, topic: str, group: str) -> list[str]:
    """For clients that are Python libraries: their module's `work(bootstrap, topic, group)`."""
    return [sys.executable, "-m", "tests.interop.clients.worker", module, bootstrap, topic, group]


class Worker:
    """A running member of a consumer group."""

    def __init__(self, client: Client, bootstrap: str, topic: str, group: str, output: Path) -> None:
        self.output = output
        self._errors = output.with_suffix(".err")
        with output.open("wb") as out, self._errors.open("wb") as errors:
            command = client.worker_command(bootstrap, topic, group)
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)

    def consumed(self) -> list[Consumed]:
        """Everything it has written so far."""
        with self.output.open() as lines:
            return parse_lines(lines)

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM; AssertionError when it had ended before, or fails to end."""
        assert self.process.poll() is None, f"worker ended with {self.process.returncode}:\n{self._errors.read_text()}"
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"worker ignored SIGTERM:\n{self._errors.read_text()}") from None
