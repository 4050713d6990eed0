"""Kafka's formatters of `kafka-console-consumer` print the same for klamm as for Kafka, after the same actions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.clients.java import run_tool
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

CONSOLE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PACKAGE: Final = "org.apache.kafka.tools.consumer."
FORMATTERS: Final = {
    "OffsetsMessageFormatter": "__consumer_offsets",
    "GroupMetadataMessageFormatter": "__consumer_offsets",
    "TransactionLogMessageFormatter": "__transaction_state",
}
SHARE_FORMATTER: Final = "group.share.ShareGroupStateMessageFormatter"
SHARE_GROUPS: Final = {"accepting": (), "rejecting": ("--reject",), "releasing": ("--release",)}
"""The acknowledge types of a share group, with their effect on the records."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
RECORDS: Final = 10
AVAILABLE: Final = 0
SNAPSHOT: Final = 0
DONE: Final = frozenset({2, 4})
"""The delivery states acknowledged and archived."""
VARYING: Final = frozenset(
    {"commitTimestamp", "topicId", "currentStateTimestamp", "memberId", "leader", "producerId", "previousProducerId"}
    | {"transactionLastUpdateTimestampMs", "transactionStartTimestampMs", "createTimestamp", "writeTimestamp"}
    | {"snapshotEpoch", "stateEpoch", "producerEpoch", "generation", "members"}
)
"""Fields that differ between two servers, or between two runs of the clients."""


def consumer(server: Server, group: str, **settings: str) -> Consumer:
    own = {"bootstrap.servers": server.bootstrap, "group.id": group, "client.id": group, "enable.auto.commit": False}
    return Consumer({**own, "auto.offset.reset": "earliest", **settings})


def read_all(reader: Consumer) -> None:
    reader.subscribe(["t"])
    count = 0
    while count < RECORDS:
        message = reader.poll(10)
        assert message is not None
        count += message.error() is None


def act(server: Server) -> None:
    """Commit offsets without and with a group of each protocol, in a transaction, and in a share group."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("t", "shared")]).values():
        future.result()
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 100})
    for number in range(RECORDS):
        for name in ("t", "shared"):
            producer.produce(name, str(number).encode())
    producer.flush()
    for group in ("simple", "gone"):
        simple = consumer(server, group)
        simple.commit(offsets=[TopicPartition("t", 0, 3, "meta")], asynchronous=False)
        simple.close()
    admin.delete_consumer_groups(["gone"])["gone"].result()
    for group, protocol in (("classic", "classic"), ("modern", "consumer")):
        reader = consumer(server, group, **{"group.protocol": protocol})
        read_all(reader)
        reader.commit(asynchronous=False)
        reader.close()
    writer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "tx"})
    writer.init_transactions()
    inside = consumer(server, "inside")
    for committed in (True, False):
        writer.begin_transaction()
        writer.produce("t", b"more")
        writer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], inside.consumer_group_metadata())
        (writer.commit_transaction if committed else writer.abort_transaction)()
    inside.close()
    for group, manner in SHARE_GROUPS.items():
        configs = ["--alter", "--add-config", "share.auto.offset.reset=earliest", "--group", group]
        run_tool("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", server.bootstrap, *configs)
        share = ["--topic", "shared", "--group", group, "--max-messages", str(RECORDS), "--timeout-ms", "30000"]
        run_tool(f"{PACKAGE}ConsoleShareConsumer", "--bootstrap-server", server.bootstrap, *share, *manner)


def formatted(server: Server, topic: str, formatter: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the key and the value of each record that the formatter shows."""
    arguments = ["--topic", topic, "--formatter", PACKAGE + formatter, "--from-beginning"]
    output = run_tool(CONSOLE_CONSUMER, "--bootstrap-server", server.bootstrap, *arguments, "--timeout-ms", "20000")
    decoder = json.JSONDecoder()
    position = 0
    while position < len(output.rstrip()):
        record, position = decoder.raw_decode(output, position)
        yield record["key"], record["value"]


def shown(server: Server, formatter: str) -> dict[str, Any]:
    """Return the last value of each key that the formatter prints, without variable fields and deleted keys."""
    records = formatted(server, FORMATTERS[formatter], formatter)
    found = {json.dumps(steady(key)): steady(value) for key, value in records}
    return {key: value for key, value in found.items() if value is not None and "console-consumer" not in key}


def share_states(server: Server) -> dict[str, list[tuple[int, int] | None]]:
    """Return the state and the deliveries of each record by share group; None for records that are done."""
    starts: dict[str, int] = {}
    states: dict[str, dict[int, tuple[int, int]]] = {}
    for key, value in formatted(server, "__share_group_state", SHARE_FORMATTER):
        group = key["data"]["groupId"]
        if key["type"] == SNAPSHOT:
            states[group] = {}
        data = value["data"]
        if data["startOffset"] >= 0:
            starts[group] = data["startOffset"]
        for batch in data["stateBatches"]:
            offsets = range(batch["firstOffset"], batch["lastOffset"] + 1)
            states[group] |= dict.fromkeys(offsets, (batch["deliveryState"], batch["deliveryCount"]))
    return {
        group: [
            None if offset < starts[group] or found.get(offset, (AVAILABLE, 0))[0] in DONE else found.get(offset)
            for offset in range(RECORDS)
        ]
        for group, found in states.items()
    }


def steady(value: Any) -> Any:
    """Return the value without variable fields."""
    if isinstance(value, dict):
        return {name: steady(each) for name, each in value.items() if name not in VARYING}
    return [steady(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    directory = tmp_path_factory.mktemp("internal-topics")
    with KlammServer(directory / "klamm", SETTINGS) as klamm, KafkaServer(directory / "kafka", SETTINGS) as kafka:
        for server in (klamm, kafka):
            act(server)
        yield klamm, kafka


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_a_formatter_shows_the_same(servers: tuple[Server, Server], formatter: str) -> None:
    klamm, kafka = (shown(server, formatter) for server in servers)
    assert klamm
    assert klamm == kafka


def test_the_formatter_of_share_groups_shows_the_same_states(servers: tuple[Server, Server]) -> None:
    klamm, kafka = (share_states(server) for server in servers)
    assert klamm == kafka
    assert klamm["accepting"] == klamm["rejecting"] == [None] * RECORDS
    assert klamm["releasing"] == [(AVAILABLE, 1)] * RECORDS


def test_the_formatter_shows_the_same_after_a_kill(servers: tuple[Server, Server]) -> None:
    klamm, _kafka = servers
    before = shown(klamm, "OffsetsMessageFormatter")
    klamm.kill9()
    klamm.start()
    assert shown(klamm, "OffsetsMessageFormatter") == before
