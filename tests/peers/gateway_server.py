"""klamm's gateway in front of a real Apache Kafka, as one server: what passes on Kafka passes on both together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import lasting_port


class GatewayServer(KlammServer):
    """`kafka` is the node behind it; `settings` are its. `options` are those of `klamm serve --set`."""

    name = "gateway"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory / "gateway", {}, port)
        self.kafka = KafkaServer(directory / "kafka", settings)
        self.node_port = lasting_port()
        self.settings = {
            "listeners.default.api_set": "gateway",
            "gateway.bootstrap": f'["{self.kafka.bootstrap}"]',
            "gateway.node_ports": str(self.node_port),
            "gateway.first_node_id": "1",
            "gateway.metadata_max_age_ms": "1000",
            **(options or {}),
        }

    def start(self) -> None:
        """Kafka first: the gateway offers what it knows."""
        if self.kafka._process is None or self.kafka.process.poll() is not None:
            self.kafka.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self.kafka.stop()
