"""The server against which the tests run."""

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
    """Return a server, not started, of the kind in the environment variable `KLAMM_INTEROP_TARGET`: klamm, kafka, or
    gateway (klamm's gateway in front of a Kafka).
    """
    return TARGETS[TARGET](directory, settings)


def lasting_server(directory: Path, settings: Mapping[str, str] | None = None) -> Server:
    """Return a server like `target_server` that keeps its port over kills, and has more time to start."""
    server = target_server(directory, settings)
    server.port = lasting_port()
    server.start_timeout_s = max(server.start_timeout_s, 90.0)
    return server


class Bootstrap(Protocol):
    """An object with the addresses to which clients connect."""

    @property
    def bootstrap(self) -> str: ...


def target_cluster(directory: Path, settings: Mapping[str, str]) -> AbstractContextManager[Bootstrap]:
    """Return a cluster of three nodes, of the kind as in `target_server`."""
    if TARGET == "klamm":
        return KlammServer(directory, {"broker.nodes": "3", **settings})
    return (KafkaCluster if TARGET == "kafka" else GatewayCluster)(directory, settings)
