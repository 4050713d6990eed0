"""Tests of groups of KIP-848 with librdkafka, with Java, with Kafka's tools, and with members of both protocols."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from tests.interop.clients.java import java_command, run_tool
from tests.peers.server import HOST, Server
from tests.peers.target import target_server
from tests.peers.wire_client import WireClient
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PARTITIONS = 4
COUNT = 200
GIVE_UP_S = 40.0
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIG_COMMAND = "org.apache.kafka.tools.ConfigCommand"
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
"""Shorter intervals than the defaults, so that members act faster."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with target_server(tmp_path_factory.mktemp("consumer-groups"), SETTINGS) as running:
        yield running


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """Yield a topic with `COUNT` records in each partition."""
    name = f"848-{topic}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result()
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for partition in range(PARTITIONS):
        for number in range(COUNT):
            producer.produce(name, b"%d" % number, partition=partition)
    assert producer.flush(GIVE_UP_S) == 0
    return name


def consumer(server: Server, group: str, protocol: str = "consumer", **settings: str) -> Consumer:
    classic = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300} if protocol == "classic" else {}
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **classic,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def poll_until(consumers: list[Consumer], done: Callable[[], bool], seen: list[tuple[int, int]] | None = None) -> None:
    """Poll all consumers until the condition holds. The records that they read are added to `seen`."""
    deadline = time.monotonic() + GIVE_UP_S
    while not done():
        assert time.monotonic() < deadline, [each.assignment() for each in consumers]
        for each in consumers:
            message = each.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                if seen is not None:
                    seen.append((message.partition(), message.offset()))


def sizes(consumers: list[Consumer]) -> list[int]:
    return sorted(len(each.assignment()) for each in consumers)


def test_librdkafka_reads_everything_once_and_shares_the_partitions(server: Server, filled: str) -> None:
    seen: list[tuple[int, int]] = []
    with closing(consumer(server, filled)) as first:
        first.subscribe([f"^{filled}$"])
        poll_until([first], lambda: len(seen) == PARTITIONS * COUNT, seen)
        assert sorted(seen) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(COUNT)]
        committed = first.commit(asynchronous=False)
        assert sorted(each.offset for each in committed) == [COUNT] * PARTITIONS
        with closing(consumer(server, filled, group_instance_id="static")) as second:
            second.subscribe([filled])
            poll_until([first, second], lambda: sizes([first, second]) == [2, 2], seen)
        poll_until([first], lambda: True)
    with closing(consumer(server, filled)) as third:
        positions = third.committed([TopicPartition(filled, partition) for partition in range(PARTITIONS)])
        assert [each.offset for each in positions] == [COUNT] * PARTITIONS
    assert len(seen) == len(set(seen))


def test_members_of_both_protocols_share_a_group(server: Server, filled: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def group_type() -> str:
        described = admin.describe_consumer_groups([filled])[filled].result()
        return str(described.type.name)

    with closing(consumer(server, filled, "classic")) as old:
        old.subscribe([filled])
        poll_until([old], lambda: sizes([old]) == [PARTITIONS])
        with closing(consumer(server, filled)) as new:
            new.subscribe([filled])
            poll_until([old, new], lambda: sizes([old, new]) == [2, 2])
            assert group_type() == "CONSUMER"
            with closing(consumer(server, filled, "classic")) as other:
                other.subscribe([filled])
                poll_until([old, new, other], lambda: sizes([old, new, other]) == [1, 1, 2])
        poll_until([old], lambda: sizes([old]) == [PARTITIONS])
        assert group_type() == "CLASSIC"


def described(server: Server, group: str) -> DescribedGroup:
    with WireClient(HOST, server.port) as client:
        found: DescribedGroup = client.call(ConsumerGroupDescribeRequest([group]), 1).groups[0]
        return found


def test_a_restarted_server_knows_its_members_after_a_kill(server: Server, filled: str) -> None:
    seen: list[tuple[int, int]] = []
    with closing(consumer(server, filled)) as one, closing(consumer(server, filled)) as other:
        for each in (one, other):
            each.subscribe([filled])
        poll_until([one, other], lambda: sizes([one, other]) == [2, 2], seen)
        before = described(server, filled)
        server.kill9()
        server.start()
        poll_until([one, other], lambda: len(set(seen)) == PARTITIONS * COUNT, seen)
        after = described(server, filled)
        assert after.group_epoch == before.group_epoch
        assert {each.member_id: each.member_epoch for each in after.members} == {
            each.member_id: each.member_epoch for each in before.members
        }


def test_java_and_the_tools_use_consumer_groups(server: Server, filled: str, tmp_path: Path) -> None:
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", filled, "--group-id", filled]
    arguments += ["--reset-policy", "earliest", "--group-protocol", "consumer", "--group-remote-assignor", "range"]
    command = java_command("org.apache.kafka.tools.VerifiableConsumer", *arguments)
    output = tmp_path / "events"
    with output.open("wb") as file, subprocess.Popen(command, stdout=file) as process:
        try:
            with closing(consumer(server, filled)) as beside:
                beside.subscribe([filled])
                poll_until([beside], lambda: len(beside.assignment()) == 2)
                check_tools(server, filled)
            wait_for_records(output)
        finally:
            process.terminate()
    events = [json.loads(line) for line in output.read_text().splitlines()]
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert any(event["name"] == "partitions_revoked" for event in events)
    tool = ["--bootstrap-server", server.bootstrap]
    run_tool(GROUP_COMMAND, *tool, "--delete", "--group", filled)
    assert filled not in run_tool(GROUP_COMMAND, *tool, "--list").split()


def check_tools(server: Server, group: str) -> None:
    tool = ["--bootstrap-server", server.bootstrap]
    listed = run_tool(GROUP_COMMAND, *tool, "--list", "--type", "consumer")
    assert group in listed
    state = [*tool, "--describe", "--group", group, "--state"]
    wait_until(lambda: "Stable" in run_tool(GROUP_COMMAND, *state), "the members do not have what they are assigned")
    members = run_tool(GROUP_COMMAND, *tool, "--describe", "--group", group, "--members", "--verbose")
    assert "TARGET-ASSIGNMENT" in members
    assert members.count(f"{group}:") >= 2 or members.count(group) > 2, members
    entity = [*tool, "--entity-type", "groups", "--entity-name", group]
    run_tool(CONFIG_COMMAND, *entity, "--alter", "--add-config", "consumer.heartbeat.interval.ms=400")
    assert "consumer.heartbeat.interval.ms=400" in run_tool(CONFIG_COMMAND, *entity, "--describe")


def wait_for_records(output: Path) -> None:
    """Wait until the tool has read every record of a partition."""
    deadline = time.monotonic() + GIVE_UP_S
    while f'"maxOffset":{COUNT - 1}' not in output.read_text():
        assert time.monotonic() < deadline, output.read_text()[-2000:]
        time.sleep(0.1)
