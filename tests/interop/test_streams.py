"""Tests of Kafka Streams: a word count is exact even if the application or the broker is killed.

They use classic groups, and streams groups (KIP-1071), whose tasks the server assigns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition

from klamm.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.interop.clients.java import STREAMS_GROUP_COMMAND, run_tool
from tests.interop.java_application import PARTITIONS, create_topics
from tests.interop.streams_application import (
    PATIENCE_S,
    Committed,
    Input,
    StreamsApplication,
    committed,
    compiled,
    produce,
)
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient
from tests.waiting import wait_until

# Kafka Streams comes with a database of 75 MB.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(600)]
WORDS = ["heron", "otter", "perch", "reed", "rush", "teal", "vole"]
LINES = 300
Start = Callable[..., StreamsApplication]
GROUP_CONFIG = 32
PORTS = {"one": 1001, "two": 1002}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(tmp_path_factory.mktemp("application"))


def lines() -> list[Input]:
    """Return lines in which each word occurs equally often, and no line equals the one before."""
    values = [" ".join(WORDS[(number + each) % len(WORDS)] for each in range(4)) for number in range(LINES)]
    return [Input(str(number), value, 1_000 * number) for number, value in enumerate(values)]


@pytest.fixture
def counts(server: Server, topic: str) -> Iterator[Committed]:
    """Yield a reader of the application's output. Its topics exist."""
    create_topics(server, topic, f"{topic}-counts")
    counts = Committed(server, f"{topic}-counts")
    yield counts
    counts.close()


@pytest.fixture
def start(server: Server, topic: str, classes: str, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts an instance, by the name of its directory."""
    started: list[StreamsApplication] = []

    def start_one(name: str, protocol: str, *settings: str) -> StreamsApplication:
        application = StreamsApplication(server, topic, classes, tmp_path / name, protocol, "counts", *settings)
        application.start()
        started.append(application)
        return application

    yield start_one
    for each in started:
        each.kill9()
        # Pytest shows this output if a test fails.
        print(each.log()[-4000:])


def check(server: Server, topic: str, values: list[Input]) -> None:
    """Check the counts. A count that is repeated or missing breaks the sequence of its word."""
    each = Counter(word for line in values for word in line.value.split())
    wanted = {word: [count.to_bytes(8, "big") for count in range(1, number + 1)] for word, number in each.items()}
    assert committed(server, f"{topic}-counts") == {f"{topic}-counts": wanted}


@pytest.mark.parametrize("killed", ["nothing", "application", "broker"])
@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_each_word_is_counted_once(
    server: Server, topic: str, counts: Committed, start: Start, protocol: str, killed: str
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
    check(server, topic, values)
    assert application.states[-1] == "NOT_RUNNING"


def test_words_are_counted_once_while_instances_start_and_stop(
    server: Server, topic: str, counts: Committed, start: Start
) -> None:
    """One instance stays for a while, a static one stops and returns, and one is killed."""
    values = lines()
    wanted = 0

    def count(part: list[Input]) -> None:
        nonlocal wanted
        wanted += 4 * len(part)
        produce(server, topic, part)
        counts.read_until(lambda: counts.total() >= wanted)

    def running(application: StreamsApplication) -> StreamsApplication:
        application.wait_until_running()
        return application

    first = running(start("one", "streams"))
    count(values[:75])
    static = running(start("two", "streams", "group.instance.id=static-instance"))
    count(values[75:150])
    static.stop(PATIENCE_S)
    static.start()
    running(static)
    killed = running(start("three", "streams"))
    count(values[150:225])
    killed.kill9()
    first.stop(PATIENCE_S)
    count(values[225:])
    check(server, topic, values)
    shown = run_tool(STREAMS_GROUP_COMMAND, "--bootstrap-server", server.bootstrap, "--list", "--state")
    assert [f"{topic}-app", "Stable"] in [line.split() for line in shown.splitlines()]


def test_a_copy_answers_queries_and_takes_over(server: Server, topic: str, counts: Committed, start: Start) -> None:
    """The copy of a killed instance has its counts, and reads nothing back."""
    standby = AlterConfigsResource(
        GROUP_CONFIG, f"{topic}-app", [AlterableConfig("streams.num.standby.replicas", 0, "1")]
    )
    with WireClient(HOST, server.port) as client:
        answer = client.call(IncrementalAlterConfigsRequest([standby]), 1)
    assert answer.responses[0].error_code == 0
    values, word = lines(), WORDS[0]
    half = sum(line.value.split().count(word) for line in values[: LINES // 2])
    whole = sum(line.value.split().count(word) for line in values)
    instances = {name: start(name, "streams", f"application.server=localhost:{port}") for name, port in PORTS.items()}
    for each in instances.values():
        each.wait_until_running()
    produce(server, topic, values[: LINES // 2])
    counts.read_until(lambda: counts.total() >= 2 * LINES)

    def says(application: StreamsApplication, *parts: str) -> bool:
        found = application.found(word)
        return all(part in found for part in parts)

    for each in instances.values():
        # The store of each instance has the word, as its own or as a copy.
        wait_until(partial(says, each, f"count={half}", "copies=1"), each.log(), within_s=PATIENCE_S)
    killed = next(name for name, port in PORTS.items() if says(instances[name], f"port={port}"))
    other = next(name for name in PORTS if name != killed)
    read_back = len(instances[other].printed("RESTORED"))
    instances[killed].kill9()
    produce(server, topic, values[LINES // 2 :])
    counts.read_until(lambda: counts.total() >= 4 * LINES)
    heir = instances[other]
    wait_until(
        lambda: says(heir, f"count={whole}", f"port={PORTS[other]}", "copies=0"), heir.log(), within_s=PATIENCE_S
    )
    restored = sum(int(line.split()[-1]) for line in heir.printed("RESTORED")[read_back:])
    assert restored < LINES
    check(server, topic, values)


def committed_offsets(server: Server, group: str, topic: str) -> set[int]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return {each.offset for each in consumer.committed(places, timeout=PATIENCE_S)}
    finally:
        consumer.close()


def test_the_tool_for_streams_groups_manages_them(server: Server, topic: str, counts: Committed, start: Start) -> None:
    group = f"{topic}-app"

    def tool(*arguments: str) -> list[list[str]]:
        shown = run_tool(STREAMS_GROUP_COMMAND, "--bootstrap-server", server.bootstrap, *arguments)
        print(arguments, shown)
        return [line.split() for line in shown.splitlines()]

    def row(lines: list[list[str]], *words: str) -> list[str]:
        return next(line for line in lines if all(word in line for word in words))

    values = lines()[:40]
    application = start("one", "streams")
    produce(server, topic, values)
    counts.read_until(lambda: counts.total() >= 4 * len(values))
    application.wait_until_running()
    describe = ("--describe", "--group", group)
    assert "Stable" in row(tool(*describe, "--state"), group)
    assert "ACTIVE:" in row(tool(*describe, "--members"), group)
    application.stop(PATIENCE_S)
    wait_until(lambda: "Empty" in row(tool(*describe, "--state"), group), within_s=PATIENCE_S)
    reset = ("--reset-offsets", "--group", group, "--all-input-topics", "--to-earliest")
    planned = row(tool(*reset, "--dry-run"), topic, "0")
    assert planned[-1] == "0"
    tool(*reset, "--execute")
    assert committed_offsets(server, group, topic) == {0}
    tool("--delete-offsets", "--group", group, "--input-topic", topic)
    assert committed_offsets(server, group, topic) == {OFFSET_INVALID}
    tool("--delete", "--group", group)
    assert group not in [word for line in tool("--list") for word in line]
