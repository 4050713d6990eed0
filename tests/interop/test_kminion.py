"""KMinion, an exporter of consumer lag that reads `__consumer_offsets` itself, reports the committed offsets.

Slow: `KLAMM_KMINION=CHECKOUT pytest -m slow tests/interop/test_kminion.py`, with a checkout of its repository at v2.3.5
(Go builds it once). `KLAMM_INTEROP_TARGET` is klamm or kafka.
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.builds import cached
from tests.peers.server import HOST, Server, free_port
from tests.peers.target import target_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

CHECKOUT: Final = os.environ.get("KLAMM_KMINION")
TOPIC: Final = "t"
RECORDS: Final = 10
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
_LAG: Final = re.compile(r"^kminion_kafka_consumer_group_topic_partition_lag\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def program() -> Path:
    if CHECKOUT is None:
        pytest.skip("set KLAMM_KMINION to a checkout of KMinion")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, check=True, capture_output=True, text=True)

    def build(folder: Path) -> Path:
        subprocess.run(["go", "build", "-o", folder / "kminion", "."], cwd=CHECKOUT, check=True, timeout=600)
        return folder / "kminion"

    return cached(f"kminion-{head.stdout.strip()}", build)


class Exporter:
    """KMinion in a child process."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._url = f"http://{HOST}:{(port := free_port())}"
        settings = {
            "KAFKA_BROKERS": bootstrap,
            "MINION_CONSUMERGROUPS_SCRAPEMODE": "offsetsTopic",
            "EXPORTER_HOST": HOST,
            "EXPORTER_PORT": str(port),
        }
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [program()], env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT
            )

    def is_ready(self) -> bool:
        """Return True if KMinion has read the topic to its end."""
        assert self.process.poll() is None
        try:
            return bool(urllib.request.urlopen(f"{self._url}/ready", timeout=10).status == 200)
        except OSError:
            return False

    def lags(self) -> dict[str, int]:
        """Return the lag of each group in the topic's partition."""
        text = urllib.request.urlopen(f"{self._url}/metrics", timeout=60).read().decode()
        found = [(dict(_LABEL.findall(labels)), int(float(value))) for labels, value in _LAG.findall(text)]
        return {labels["group_id"]: value for labels, value in found if labels["topic_name"] == TOPIC}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with target_server(tmp_path / "server", SETTINGS) as running:
        yield running


def produce(server: Server) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number))
    producer.flush()


def commit(server: Server, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def test_lag_is_read_from_the_topic_of_offsets(server: Server, tmp_path: Path) -> None:
    program()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    produce(server)
    for group, offset in (("behind", 3), ("done", RECORDS), ("deleted", 1)):
        commit(server, group, offset)
    exporter = Exporter(server.bootstrap, tmp_path / "kminion.log")
    try:
        wait_until(exporter.is_ready, within_s=120)
        wait_until(lambda: exporter.lags() == {"behind": 7, "done": 0, "deleted": 9}, within_s=120)
        commit(server, "behind", 8)
        wait_until(lambda: exporter.lags() == {"behind": 2, "done": 0, "deleted": 9}, within_s=120)
        admin.delete_consumer_groups(["deleted"])["deleted"].result()
        produce(server)
        wait_until(lambda: exporter.lags() == {"behind": 12, "done": RECORDS}, within_s=120)
    finally:
        exporter.process.terminate()
        exporter.process.wait()
