"""klamm's gateway in front of a real Apache Kafka: tests that pass on Kafka must pass on both together."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.peers.kafka_cluster import NODE_IDS, KafkaCluster, KafkaNodes
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import lasting_port


class GatewayServer(KlammServer):
    """A gateway and the one node behind it, as one server. `kafka` is the node, and `settings` are the node's.
    `options` are the gateway's, as for `klamm serve --set`.
    """

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
        """Start Kafka first, because the gateway offers the APIs that the node has."""
        if self.kafka._process is None or self.kafka.process.poll() is not None:
            self.kafka.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self.kafka.stop()


def gateway_before(cluster: KafkaCluster, directory: Path) -> KlammServer:
    """Return a gateway, not started, in front of a cluster that may not run yet."""
    # None of these ports is one that outgoing connections get.
    first = min(lasting_port(), 32_000)
    addresses = ", ".join(f'"{each}"' for each in cluster.bootstrap.split(","))
    settings = {
        "listeners.default.api_set": "gateway",
        "gateway.bootstrap": f"[{addresses}]",
        "gateway.node_ports": f"{first}-{first + len(NODE_IDS) - 1}",
        "gateway.first_node_id": str(NODE_IDS[0]),
    }
    return KlammServer(directory, settings)


class GatewayCluster:
    """A gateway in front of three brokers with `settings`: `with GatewayCluster(directory) as both: ... both.bootstrap
    ...`.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._cluster = KafkaCluster(directory / "kafka", settings)
        self._gateway = gateway_before(self._cluster, directory / "gateway")

    @property
    def bootstrap(self) -> str:
        """The bootstrap address of the gateway."""
        return self._gateway.bootstrap

    @property
    def nodes(self) -> KafkaNodes:
        """The controls of the brokers."""
        return self._cluster.nodes

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            started.enter_context(self._cluster)
            started.enter_context(self._gateway)
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, traceback)
