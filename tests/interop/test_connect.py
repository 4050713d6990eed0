"""Kafka Connect on klamm: its file source and file sink, in standalone and in distributed mode."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.clients.java import TOPIC_COMMAND, java_command, run_tool
from tests.peers.kafka_jars import file_connectors
from tests.peers.server import HOST, Server, free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S = 90
TASKS = 2


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def properties(path: Path, values: dict[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return str(path)


class Worker:
    """A worker of Connect in a child process. Its REST interface answers `call`."""

    def __init__(self, server: Server, folder: Path, mode: str, settings: dict[str, object]) -> None:
        self.port = free_port()
        self.folder = folder
        self._log = folder / f"worker-{self.port}.log"
        text = "org.apache.kafka.connect.storage.StringConverter"
        common = {
            "bootstrap.servers": server.bootstrap,
            "key.converter": text,
            "value.converter": text,
            "offset.flush.interval.ms": 500,
            "listeners": f"http://{HOST}:{self.port}",
            "plugin.discovery": "service_load",
            "consumer.auto.offset.reset": "earliest",
        }
        self._main = f"org.apache.kafka.connect.cli.Connect{mode}"
        self._arguments = [properties(folder / f"worker-{self.port}.properties", common | settings)]

    def start(self, *connectors: str) -> None:
        command = java_command(self._main, *self._arguments, *connectors, classes=file_connectors())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def kill9(self) -> None:
        self._process.kill()
        self._process.wait()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the decoded answer, or None as long as there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.loads(response.read() or b"{}")
        except (urllib.error.HTTPError, OSError):
            assert self._process.poll() is None, self._log.read_text()
            return None

    def is_running(self, connector: str) -> bool:
        status = self.call("GET", f"/connectors/{connector}/status")
        states = [status["connector"]["state"], *(task["state"] for task in status["tasks"])] if status else []
        return len(states) > 1 and set(states) == {"RUNNING"}


def file_source(topic: str, file: Path) -> dict[str, object]:
    return {"connector.class": "FileStreamSource", "tasks.max": 1, "file": file, "topic": topic}


def file_sink(topic: str, file: Path) -> dict[str, object]:
    return {"connector.class": "FileStreamSink", "tasks.max": 1, "file": file, "topics": topic}


def append(file: Path, numbers: range) -> None:
    with file.open("a") as lines:
        lines.writelines(f"line {number}\n" for number in numbers)


def numbers_in(file: Path) -> list[int]:
    return [int(line.split()[1]) for line in file.read_text().splitlines()] if file.exists() else []


def create(server: Server, topic: str) -> None:
    arguments = ["--topic", topic, "--partitions", "1", "--replication-factor", "1"]
    run_tool(TOPIC_COMMAND, "--bootstrap-server", server.bootstrap, "--create", *arguments)


def wait_for_lines(file: Path, count: int) -> None:
    wait_for(lambda: len(numbers_in(file)) >= count, lambda: numbers_in(file)[-3:])


def test_a_standalone_worker_copies_a_file_and_continues_after_a_restart(
    server: Server, topic: str, tmp_path: Path
) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    append(source, range(100))
    connectors = [
        properties(tmp_path / "source.properties", {"name": f"{topic}-source", **file_source(topic, source)}),
        properties(tmp_path / "sink.properties", {"name": f"{topic}-sink", **file_sink(topic, sink)}),
    ]
    worker = Worker(server, tmp_path, "Standalone", {"offset.storage.file.filename": tmp_path / "offsets"})
    create(server, topic)
    for lines in (range(100, 200), range(200, 300)):
        worker.start(*connectors)
        try:
            wait_for_lines(sink, lines.start)
            append(source, lines)
            wait_for_lines(sink, lines.stop)
        finally:
            worker.stop()
    assert numbers_in(sink) == [*range(300)]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_distributed_workers_take_over_the_tasks_of_a_killed_worker(
    server: Server, topic: str, tmp_path: Path, exactly_once: bool
) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    append(source, range(100))
    settings: dict[str, object] = {
        "group.id": f"{topic}-connect",
        "scheduled.rebalance.max.delay.ms": 0,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "exactly.once.source.support": "enabled" if exactly_once else "disabled",
    }
    for kind in ("config", "offset", "status"):
        settings |= {f"{kind}.storage.topic": f"{topic}-{kind}", f"{kind}.storage.replication.factor": 1}
    workers = [Worker(server, tmp_path, "Distributed", settings) for _ in range(2)]
    create(server, topic)
    names = {f"{topic}-source": file_source(topic, source), f"{topic}-sink": file_sink(topic, sink)}
    if exactly_once:
        names[f"{topic}-sink"]["consumer.override.isolation.level"] = "read_committed"
    try:
        for worker in workers:
            worker.start()
        for name, config in names.items():
            config = {key: str(value) for key, value in config.items()}
            path = f"/connectors/{name}/config"
            wait_for(lambda path=path, config=config: bool(workers[0].call("PUT", path, config)), lambda: "no worker")
        wait_for_lines(sink, 100)
        append(source, range(100, 200))
        workers[0].kill9()
        append(source, range(200, 300))
        wait_for_lines(sink, 300)
        for name in names:
            wait_for(lambda name=name: workers[1].is_running(name), lambda: workers[1].call("GET", "/connectors"))
    finally:
        for worker in workers:
            worker.kill9()
    found = numbers_in(sink)
    assert sorted({*found}) == [*range(300)]
