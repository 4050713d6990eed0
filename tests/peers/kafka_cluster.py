"""A real Apache Kafka with three brokers and a controller in four child processes, for comparison with klamm's
nodes.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from klamm.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from klamm.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.kafka_jars import classpath
from tests.peers.kafka_server import KafkaServer, cluster_id
from tests.peers.server import HOST
from tests.peers.wire_client import WireClient
from tests.waiting import wait_until

NODE_IDS = (1, 2, 3)
"""The ids of the brokers."""
_CONTROLLER_ID = 100
_PATIENCE_S = 60
_COMMON = """\
node.id={node_id}
controller.quorum.voters={controller_id}@{host}:{controller_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
"""
_CONTROLLER = """\
process.roles=controller
listeners=CONTROLLER://{host}:{port}
"""
_BROKER = """\
process.roles=broker
listeners=PLAINTEXT://{host}:{port}
inter.broker.listener.name=PLAINTEXT
default.replication.factor=3
offsets.topic.num.partitions=1
offsets.topic.replication.factor=3
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.leader.rebalance.enable=false
"""
COORDINATORS = ("__consumer_offsets", "__transaction_state")
"""Settings of the coordinators' topics. Each has one partition, so the partition's leader coordinates all keys."""


class KafkaNode(KafkaServer):
    """The controller, or one broker."""

    start_timeout_s = 180.0

    def __init__(
        self,
        directory: Path,
        node_id: int,
        cluster: str,
        settings: Mapping[str, str],
        controller: KafkaNode | None = None,
    ) -> None:
        super().__init__(directory / str(node_id), settings)
        self.node_id = node_id
        self._cluster = cluster
        self._controller = controller

    def command(self) -> list[str]:
        controller = self._controller or self
        text = (_COMMON + (_CONTROLLER if controller is self else _BROKER)).format(
            node_id=self.node_id,
            controller_id=controller.node_id,
            controller_port=controller.port,
            host=HOST,
            port=self.port,
            data=self.data_dir,
        ) + "".join(f"{key}={value}\n" for key, value in self.settings.items())
        properties = self.directory / "server.properties"
        properties.write_text(text)
        if not (self.data_dir / "meta.properties").exists():
            storage = ["java", "-cp", classpath(), "kafka.tools.StorageTool", "format"]
            command = [*storage, "-t", self._cluster, "-c", str(properties)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        options = ["-Xmx512M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return ["java", *options, "-cp", classpath(), "kafka.Kafka", str(properties)]


class KafkaNodes:
    """The controls of the brokers for tests, with the methods of `klamm_broker.cluster.nodes.Nodes`."""

    def __init__(self, brokers: dict[int, KafkaNode]) -> None:
        self._brokers = brokers
        self._running = set(brokers)

    def describe(self) -> list[dict[str, Any]]:
        """Return for each broker its id, and True if it runs."""
        return [{"id": node_id, "running": node_id in self._running} for node_id in self._brokers]

    def stop(self, node_id: int) -> None:
        """Shut down a broker in good order."""
        self._brokers[node_id].stop()
        self._running.discard(node_id)

    def start(self, node_id: int) -> None:
        """Start a broker again, and wait until the others know it."""
        if node_id not in self._running:
            self._brokers[node_id].start()
            self._running.add(node_id)
            wait_until(
                lambda: len(self.call(MetadataRequest([]), 9).brokers) == len(self._running), within_s=_PATIENCE_S
            )

    def pause(self, node_id: int) -> None:
        """Pause the process of a broker. It keeps its connections, but answers no requests."""
        self._brokers[node_id].process.send_signal(signal.SIGSTOP)
        self._running.discard(node_id)

    def resume(self, node_id: int) -> None:
        """Let a paused broker continue."""
        self._brokers[node_id].process.send_signal(signal.SIGCONT)
        self._running.add(node_id)

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make a broker the leader of a partition. It becomes the preferred leader first."""
        replicas = [node_id, *(each for each in NODE_IDS if each != node_id)]
        wanted = [ReassignableTopic(topic, [ReassignablePartition(index, replicas)])]

        def has_moved() -> bool:
            self.call(AlterPartitionReassignmentsRequest(topics=wanted), 0)
            self.call(ElectLeadersRequest(0, [TopicPartitions(topic, [index])]), 1)
            return self.leaders(topic).get(index) == node_id

        wait_until(has_moved, f"{topic}-{index} does not move to {node_id}", within_s=_PATIENCE_S)

    def move_coordinator(self, key: str, node_id: int) -> None:  # noqa: ARG002
        """Make a broker the coordinator of all keys, because the topics of coordinators have one partition."""
        there = self.call(MetadataRequest(None), 9).topics
        for topic in COORDINATORS:
            if any(each.name == topic for each in there):
                self.move_leader(topic, 0, node_id)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition."""
        (found,) = self.call(MetadataRequest([MetadataRequestTopic(name=topic)]), 9).topics
        return {each.partition_index: each.leader_id for each in found.partitions}

    def call(self, request: Any, version: int) -> Any:
        """Send a request to a running broker. Return the response."""
        for node_id in sorted(self._running):
            with contextlib.suppress(OSError), WireClient(HOST, self._brokers[node_id].port) as client:
                return client.call(request, version)
        raise OSError("no broker answers")


class KafkaCluster:
    """`with KafkaCluster(directory) as cluster: ... cluster.bootstrap, cluster.nodes ...`

    `settings` have Kafka's keys, and apply to each broker and the controller.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        cluster, settings = cluster_id(), settings or {}
        self._controller = KafkaNode(directory, _CONTROLLER_ID, cluster, settings)
        self._brokers = {each: KafkaNode(directory, each, cluster, settings, self._controller) for each in NODE_IDS}
        self.nodes = KafkaNodes(self._brokers)

    @property
    def bootstrap(self) -> str:
        """The bootstrap addresses of all brokers."""
        return ",".join(each.bootstrap for each in self._brokers.values())

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic with three replicas."""
        (result,) = self.nodes.call(CreateTopicsRequest([CreatableTopic(name, partitions, 3)]), 5).topics
        assert result.error_code == 0, result
        wait_until(lambda: -1 not in self.nodes.leaders(name).values() and len(self.nodes.leaders(name)) == partitions)

    @staticmethod
    def wait_until(condition: Callable[[], object], what: str = "", *, timeout_s: float = 10.0) -> None:
        """Wait for a condition, like `EmbeddedServer.wait_until`."""
        wait_until(condition, what, within_s=timeout_s)

    def __enter__(self) -> Self:
        self._controller.start()
        for broker in self._brokers.values():
            broker.start()
        wait_until(lambda: len(self.nodes.call(MetadataRequest([]), 9).brokers) == len(NODE_IDS), within_s=_PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The brokers stop first, because without their controller they would not shut down in good order.
        for each in (*self._brokers.values(), self._controller):
            each.kill9()
