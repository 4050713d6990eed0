"""Java's clients of earlier releases of Apache Kafka: each call gets the same answer as with the newest client.

Slow: `pytest -m slow tests/interop/test_old_java_clients.py`. Maven fetches each release once. With
`KLAMM_INTEROP_TARGET=kafka` the server is Kafka.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.test_java_admin import EXPECTED as OF_ADMIN
from tests.peers.kafka_jars import VERSION, client
from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

RELEASES = ("3.9.1", "4.0.0", "4.1.1", "4.2.0", VERSION)
SOURCES = Path(__file__).parent / "java"
OF_CLIENTS = {
    "classic group reads": "500",
    "classic group has committed": "500",
    "classic group reads again": "0",
    "consumer group reads": "500",
    "consumer group has committed": "500",
    "consumer group reads again": "0",
    "offset of the transaction": "5",
    "read_committed": "180",
    "read_uncommitted": "190",
}
PROGRAMS = {"AdminCalls": OF_ADMIN, "ClientCalls": OF_CLIENTS}
OLD_NAMES = {"3.9.1": {"listGroups": "listConsumerGroups", "describeClassicGroups": "describeConsumerGroups"}}
"""The earlier answers of calls whose answers have changed since."""


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_call_is_answered(server: Server, topic: str, tmp_path: Path, program: str, release: str) -> None:
    jars = client(release)
    source = tmp_path / f"{program}.java"
    text = (SOURCES / source.name).read_text()
    for name, old in OLD_NAMES.get(release, {}).items():
        text = text.replace(name, old)
    source.write_text(text)
    subprocess.run(["javac", "-cp", jars, "-d", tmp_path, source], check=True, timeout=120)
    command = ["java", "-Xmx256M", "-cp", f"{tmp_path}:{jars}", program, server.bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert dict(line.split("\t") for line in done.stdout.splitlines()) == PROGRAMS[program], done.stderr
