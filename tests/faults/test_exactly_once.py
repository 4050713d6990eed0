"""Exactly once: numbers are copied in transactions while server and client are killed with `kill -9`.

Ten kills in CI; `-m slow` has fifty of the server and fifty of the client.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.peers.server import Server
from tests.peers.target import target_server

pytestmark = [pytest.mark.faults, pytest.mark.interop]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
LONGEST_LIFE_S = 0.7
GIVE_UP_S = 240


class Copier:
    """The process that copies. It is started again whenever it ends."""

    def __init__(self, server: Server) -> None:
        self._arguments = [sys.executable, "-m", "tests.faults.kills.copier", server.bootstrap, "source", "output"]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def revive(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def read_committed(server: Server, count: int, copier: Copier) -> list[int]:
    """Return the output once it has this number of values, with all values after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("output", 0, 0)])
    values: list[int] = []
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        assert time.monotonic() < deadline, f"{len(values)} of {count} values after {GIVE_UP_S} s"
        copier.revive()
        message = consumer.poll(0.5)
        if message is None:
            continue
        if not message.error():
            values.append(int(message.value()))
        elif len(values) >= count:
            consumer.close()
            return values


def copy_under_kills(directory: Path, seed: int, kills: int, count: int) -> None:
    moments = random.Random(seed)
    with target_server(directory, SETTINGS) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.create_topics([NewTopic("source", 1, 1), NewTopic("output", 1, 1)]).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5})
        for number in range(count):
            producer.produce("source", str(number))
        producer.flush(30)
        copier = Copier(server)
        try:
            for number in range(2 * kills):
                time.sleep(moments.uniform(0.1, LONGEST_LIFE_S))
                if number % 2:
                    copier.kill()
                else:
                    server.kill9()
                    server.start()
                copier.revive()
            values = read_committed(server, count, copier)
        finally:
            with suppress(OSError):
                copier.kill()
        assert values == list(range(count))


@pytest.mark.timeout(420)
def test_nothing_is_lost_or_repeated(tmp_path: Path, seed: int) -> None:
    copy_under_kills(tmp_path / "server", seed, 5, 3000)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_repeated_in_fifty_kills_of_each(tmp_path: Path, seed: int) -> None:
    copy_under_kills(tmp_path / "server", seed, 50, 30_000)
