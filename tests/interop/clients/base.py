"""`Client`: the operations that tests use of a client in any language."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from tests.interop.workload import Consumed, KeyValue

IN_FLIGHT_RECORDS = 10_000
"""The maximum number of unacknowledged records of a producer, so that a restart happens in the middle."""
POLL_RECORDS = 500
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
GIVE_UP_S = 120.0
"""The seconds during which a producer retries, and a consumer waits for missing records."""
ROOT = Path(__file__).resolve().parents[3]


class Client(ABC):
    """A real client. A method returns after the server has acknowledged, and raises if the server has refused."""

    name: str
    commits_on_a_timer = False
    """True if members commit records by time, after they have printed them.

    Then they may repeat any number of records.
    """

    @abstractmethod
    def create_topic(self, bootstrap: str, topic: str) -> None:
        """Create a topic with `PARTITIONS` partitions."""

    @abstractmethod
    def produce_all(self, bootstrap: str, topic: str, records: Iterable[KeyValue], codec: str = "none") -> None:
        """Produce all records in the order of `records`, idempotently, with acks=all."""

    @abstractmethod
    def consume_all(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """Read the topic from its beginning, without a group, until `count` records were read."""

    def member_command(self, bootstrap: str, group: str, topic: str) -> list[str]:
        """Return the command line of a group member, which prints every record before it commits, until SIGTERM."""
        return [sys.executable, "-m", "tests.interop.clients.member", self.name, bootstrap, group, topic]

    def parse_line(self, line: str) -> Consumed | None:
        """Return the record on one line that a member prints; None if the line has no record."""
        partition, offset, key, value = line.split("\t")
        return Consumed(int(partition), int(offset), key, value)

    def join(self, bootstrap: str, group: str, topic: str, output: Path) -> Member:
        """Start a member that prints to `output`."""
        with output.open("wb") as stdout, output.with_suffix(".err").open("wb") as stderr:
            command = self.member_command(bootstrap, group, topic)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=ROOT)
        return Member(self, process, output)


class Member:
    """A group member in its own process."""

    def __init__(self, client: Client, process: subprocess.Popen[bytes], output: Path) -> None:
        self._client = client
        self._process = process
        self._output = output
        self._lines_end = 0
        self._consumed: list[Consumed] = []

    def consumed(self) -> list[Consumed]:
        """Return the records that the member has printed so far. An incomplete last line is left for the next call."""
        with self._output.open("rb") as file:
            file.seek(self._lines_end)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._lines_end += len(whole)
        parsed = (self._client.parse_line(line) for line in whole.decode().splitlines())
        self._consumed += [record for record in parsed if record is not None]
        return self._consumed

    def wait_for_records(self) -> None:
        """Wait until the member has read a record. Raises TimeoutError after `GIVE_UP_S`."""
        deadline = time.monotonic() + GIVE_UP_S
        while not self.consumed():
            if time.monotonic() > deadline:
                raise TimeoutError(f"a member read nothing:\n{self.errors()}")
            time.sleep(0.02)

    def errors(self) -> str:
        """Return the last lines that the member wrote to standard error."""
        return "\n".join(self._output.with_suffix(".err").read_text(errors="replace").splitlines()[-20:])

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill9(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Send SIGTERM, and after ten seconds SIGKILL."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill9()


def feed(command: list[str], lines: Iterable[str], timeout_s: float = GIVE_UP_S) -> None:
    """Run a producer that takes one record a line from standard input. Raises RuntimeError if the producer fails."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in lines:
                process.stdin.write(line.encode())
            process.stdin.close()
            process.wait(timeout_s)
        except BaseException:
            process.kill()
            raise
        if process.returncode:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {process.stdout.read()[-2000:]!r}")
