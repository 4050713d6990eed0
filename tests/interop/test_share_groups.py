"""Tests of share groups with Kafka's own clients and tools, also while the server is killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.clients.java import java_command, run_tool
from tests.peers.server import Server
from tests.peers.target import target_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PARTITIONS = 2
COUNT = 300
GIVE_UP_S = 60.0
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with target_server(tmp_path_factory.mktemp("share-groups")) as running:
        yield running


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """Yield a topic with `COUNT` records. The share group of the same name reads it from the start."""
    name = f"932-{topic}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result()
    produce(server, name, 0, COUNT)
    tool = ["--bootstrap-server", server.bootstrap, "--alter", "--entity-type", "groups", "--entity-name", name]
    run_tool(CONFIG_COMMAND, *tool, "--add-config", "share.auto.offset.reset=earliest")
    return name


def produce(server: Server, topic: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(first, end):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(GIVE_UP_S) == 0


def test_the_tools_read_and_administer_a_share_group(server: Server, filled: str) -> None:
    tool = ["--bootstrap-server", server.bootstrap]
    reading = ["--topic", filled, "--group", filled, "--max-messages", str(COUNT), "--timeout-ms", "20000"]
    values = run_tool(CONSUMER, *tool, *reading).split()
    assert sorted(int(value) for value in values) == list(range(COUNT))
    described = run_tool(SHARE_GROUPS, *tool, "--describe", "--group", filled)
    rows = [line.split() for line in described.splitlines() if line.startswith(filled)]
    assert sorted((row[2], row[3]) for row in rows) == [(str(index), str(COUNT // PARTITIONS)) for index in (0, 1)]
    reset = ["--reset-offsets", "--group", filled, "--topic", filled, "--to-earliest", "--execute"]
    run_tool(SHARE_GROUPS, *tool, *reset)
    assert len(run_tool(CONSUMER, *tool, *reading).split()) == COUNT
    run_tool(SHARE_GROUPS, *tool, "--delete", "--group", filled)


def events(output: Path) -> list[dict[str, object]]:
    """Return the events that a verifiable consumer has printed so far."""
    lines = output.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]


def acknowledged(output: Path) -> set[tuple[int, int]]:
    """Return partition and offset of each record whose acknowledgement was confirmed."""
    found: set[tuple[int, int]] = set()
    for event in events(output):
        if event["name"] == "offsets_acknowledged" and event["success"]:
            for partition in event["partitions"]:  # type: ignore[attr-defined]
                found.update((partition["partition"], offset) for offset in partition["offsets"])
    return found


@pytest.mark.slow
def test_no_record_is_lost_when_the_server_is_killed(server: Server, filled: str, tmp_path: Path) -> None:
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", filled, "--group-id", filled]
    outputs = [tmp_path / "one", tmp_path / "other"]
    processes = []
    kills = 3
    wanted = {(number % PARTITIONS, number // PARTITIONS) for number in range(COUNT * (kills + 1))}
    try:
        for output in outputs:
            with output.open("wb") as file:
                command = java_command(VERIFIABLE, *arguments, "--acknowledgement-mode", "sync")
                processes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + GIVE_UP_S
        for kill in range(1, kills + 1):
            while not any(acknowledged(output) for output in outputs) and time.monotonic() < deadline:
                time.sleep(0.1)
            produce(server, filled, COUNT * kill, COUNT * (kill + 1))
            server.kill9()
            server.start()
        found: set[tuple[int, int]] = set()
        while found != wanted and time.monotonic() < deadline:
            time.sleep(0.2)
            found = set().union(*(acknowledged(output) for output in outputs))
        assert wanted - found == set()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(GIVE_UP_S)
