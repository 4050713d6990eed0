"""`Season`: a series of kills of one server on one data directory while clients run, and the checks at the end."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.metadata import MetadataRequest
from tests.faults.kills.loads import IMPATIENT, PARTITIONS, Administrator, Committer, Load, PlainLoad, Survivors
from tests.peers.server import HOST, Server
from tests.peers.wire_client import WireClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LONGEST_LIFE_S = 1.0
PATIENCE_S = 60
_TOPIC_RESOURCE = 2


class Checked(NamedTuple):
    """The numbers of acknowledged and checked items."""

    records: int
    commits: int
    topic_changes: int


def _positions(bootstrap: str, topic: str) -> list[int]:
    """Return the group's committed positions by partition; -1001 if there is none. Apache Kafka needs some time to load
    them.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-commits", **IMPATIENT})
    partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    deadline = time.monotonic() + 30
    while True:
        try:
            found = consumer.committed(partitions, timeout=60)
            break
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
    consumer.close()
    return [position.offset for position in found]


def _read_all(bootstrap: str, topic: str) -> dict[tuple[int, int], int]:
    """Return the whole topic, in the form of `Load.acknowledged`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(PARTITIONS)]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < sum(ends):
        assert time.monotonic() < deadline, f"{len(found)} of {sum(ends)} records can be read"
        for message in consumer.consume(10_000, 0.2):
            deadline = time.monotonic() + PATIENCE_S
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes), message.error()
            found[partition, offset] = int(value[:10])
    consumer.close()
    return found


class Season:
    """A series of kills with its own topics, groups and clients. `number` also selects the codec."""

    def __init__(self, server: Server, number: int, moments: random.Random) -> None:
        self._server = server
        self._moments = moments
        self._topic, self._plain_topic = f"killed-{number}", f"killed-plainly-{number}"
        self._codec = CODECS[number % len(CODECS)]
        self._commits = 0
        self._administrator = Administrator(f"made-{number}")

    def run(self, kills: int) -> Checked:
        """Kill the server `kills` times. Raises AssertionError if acknowledged data is lost."""
        bootstrap = self._server.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [self._topic, self._plain_topic]
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
            created.result(30)
        load, survivors = Load(bootstrap, self._topic, self._codec), Survivors(bootstrap, self._topic)
        plain_load = PlainLoad(bootstrap, self._plain_topic)
        try:
            for _ in range(kills):
                self._kill_once(load, survivors)
            load.stop()
            plain_load.stop()
            survivors.wait_for(load.acknowledged.keys())
        finally:
            load.stop()
            plain_load.stop()
            survivors.stop()
        assert not load.refused, load.refused[0]
        found = self._check_records(self._topic, load.acknowledged)
        for partition in range(PARTITIONS):
            numbers = [found[place] for place in sorted(found) if place[0] == partition]
            assert numbers == sorted(set(numbers)), f"partition {partition} has records twice or out of order"
        self._check_records(self._plain_topic, plain_load.acknowledged)
        self._check_configs()
        # Deleted, so that a later season does not recover the logs of all earlier ones.
        for deleted in admin.delete_topics(topics).values():
            deleted.result(30)
        records = len(load.acknowledged) + len(plain_load.acknowledged)
        return Checked(records, self._commits, self._administrator.changes)

    def _kill_once(self, load: Load, survivors: Survivors) -> None:
        server = self._server
        committer = Committer(server.port, self._topic, self._commits)
        self._administrator.begin(server.port)
        load.wait_for_more()
        survivors.wait_for_more()
        committer.wait_for_more()
        time.sleep(self._moments.uniform(0, LONGEST_LIFE_S))
        server.kill9()
        self._commits = committer.join()
        self._administrator.join()
        server.start()
        assert min(_positions(server.bootstrap, self._topic)) >= self._commits, "a committed position is lost"
        self._check_topics()

    def _check_records(self, topic: str, acknowledged: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
        found = _read_all(self._server.bootstrap, topic)
        lost = {place for place, number in acknowledged.items() if found.get(place) != number}
        assert not lost, f"{topic}: {len(lost)} of {len(acknowledged)} acknowledged records are not in their place"
        return found

    def _check_topics(self) -> None:
        with WireClient(HOST, self._server.port) as client:
            names = {topic.name for topic in client.call(MetadataRequest(topics=None), 12).topics}
        lost = self._administrator.there.keys() - names
        assert not lost, f"topics that were created are gone: {sorted(lost)}"
        back = self._administrator.gone & names
        assert not back, f"topics that were deleted are there: {sorted(back)}"

    def _check_configs(self) -> None:
        wanted = self._administrator.there
        resources = [DescribeConfigsResource(_TOPIC_RESOURCE, name, ["retention.ms"]) for name in wanted]
        with WireClient(HOST, self._server.port) as client:
            results = client.call(DescribeConfigsRequest(resources), 4).results
        found = {result.resource_name: result.configs[0].value for result in results}
        assert found == wanted, "topics have other configs than they were created with"
