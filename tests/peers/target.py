"""Which server the tests run against."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tests.peers.gateway_server import GatewayCluster, GatewayServer
from tests.peers.kafka_cluster import KafkaCluster
from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import Server, lasting_port

TARGETS: dict[str, type[Server]] = {"klamm": KlammServer, "kafka": KafkaServer, "gateway": GatewayServer}
TARGET = os.environ.get("KLAMM_INTEROP_TARGET", "klamm")


def target_server(directory: Path, settings: Mapping[str, str] | None = None) -> Server:
    """A server, not started, of the kind that the environment variable `KLAMM_INTEROP_TARGET` names: klamm,
    kafka, or gateway: klamm's gateway before a Kafka."""
    return TARGETS[TARGET](directory, settings)


def lasting_server(directory: Path, settings: Mapping[str, str] | None = None) -> Server:
    """As `target_server`, with a port that it keeps over kills, and time to start beside other work."""
    server = target_server(directory, settings)
    server.port = lasting_port()
    server.start_timeout_s = max(server.start_timeout_s, 90.0)
    return server


class Bootstrap(Protocol):
    """Where clients connect to."""

    @property
    def bootstrap(self) -> str: ...


def target_cluster(directory: Path, settings: Mapping[str, str]) -> AbstractContextManager[Bootstrap]:
    """As `target_server`, with three nodes."""
    if TARGET == "klamm":
        return KlammServer(directory, {"broker.nodes": "3", **settings})
    return (KafkaCluster if TARGET == "kafka" else GatewayCluster)(directory, settings)
