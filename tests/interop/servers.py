"""Which server the interop tests talk to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.peers.kafka_server import KafkaServer
from tests.peers.klamm_server import KlammServer
from tests.peers.server import Server

PARTITIONS = 3
SETTINGS = {"num.partitions": str(PARTITIONS), "group.initial.rebalance.delay.ms": "0"}
TARGETS: dict[str, type[Server]] = {"klamm": KlammServer, "kafka": KafkaServer}


def target() -> str:
    """`klamm`, or what the environment says."""
    return os.environ.get("KLAMM_INTEROP_TARGET", "klamm")


def make_server(directory: Path, settings: Mapping[str, str] | None = None) -> Server:
    """Not started yet."""
    return TARGETS[target()](directory, SETTINGS | dict(settings or {}))
