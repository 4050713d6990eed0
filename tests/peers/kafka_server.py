"""A real Apache Kafka (KRaft, one node) in a child process, for comparison. Needs Java 17 and, once, Maven."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.peers.kafka_jars import classpath
from tests.peers.probe import answers_api_versions
from tests.peers.server import HOST, Server, free_port

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


def cluster_id() -> str:
    """Return a random UUID in Kafka's form: URL-safe base64 without padding and without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class KafkaServer(Server):
    """A Kafka server. It is started as Kafka's own scripts start it: 1 GiB of heap, G1, tiered compilation."""

    name = "kafka"
    start_timeout_s = 90.0
    stop_timeout_s = 60.0
    clean_exit_codes = (0, 143)
    """A JVM that ends in order after SIGTERM exits with 143."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, port: int | None = None) -> None:
        super().__init__(directory, settings, port)
        self.controller_port = free_port()

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    def command(self) -> list[str]:
        properties = self.directory / "server.properties"
        text = _PROPERTIES.format(
            host=HOST, port=self.port, controller_port=self.controller_port, data=self.data_dir
        ) + "".join(f"{key}={value}\n" for key, value in self.settings.items())
        properties.write_text(text)
        if not (self.data_dir / "meta.properties").exists():
            storage = ["java", "-cp", classpath(), "kafka.tools.StorageTool", "format"]
            subprocess.run(
                [*storage, "-t", cluster_id(), "-c", str(properties)], check=True, capture_output=True, timeout=60
            )
        options = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        return ["java", *options, "-cp", classpath(), "kafka.Kafka", str(properties)]

    def answers(self) -> bool:
        return answers_api_versions(HOST, self.port)
