"""Histories of real clients under kills have no anomaly. `-m slow -s` runs 200 of them, or `KLAMM_HISTORIES`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from klamm.testing import EmbeddedServer
from klamm.testing.histories import Anomaly, Recorder, check_history, read_history
from tests.interop.histories.clients import PARTITIONS, Workload
from tests.interop.histories.planted import FAULTS
from tests.peers.gateway_server import GatewayCluster
from tests.peers.kafka_cluster import KafkaCluster
from tests.peers.klamm_server import ROOT, KlammServer
from tests.peers.server import Server, lasting_port
from tests.peers.target import TARGET, Bootstrap, lasting_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
# Apache Kafka acknowledges a change of a config before all its nodes answer with it.
KNOWN = set() if TARGET == "klamm" else {"not_linearizable"}
HISTORIES = int(os.environ.get("KLAMM_HISTORIES", "200"))


def kills(server: Server, choose: Random, times: int) -> Callable[[], None]:
    """Return a function that kills the server at random moments, and starts it again."""
    left = [times]

    def disturb() -> None:
        time.sleep(choose.uniform(0.1, 0.6))
        if left[0] > 0:
            left[0] -= 1
            server.kill9()
            server.start()

    return disturb


def anomalies_of(server: Server, directory: Path, seed: int, operations: int, times: int) -> list[Anomaly]:
    """Record one history of a server that is killed, and check it."""
    return _anomalies_of(server, directory, seed, operations, kills(server, Random(seed), times))


def _anomalies_of(
    server: Bootstrap, directory: Path, seed: int, operations: int, disturb: Callable[[], None], replicas: int = 1
) -> list[Anomaly]:
    path = directory / f"history-{seed}.jsonl"
    with path.open("w") as file:
        work = Workload(server, f"history-{seed}", Recorder(file), seed, replicas)
        work.run(operations, disturb)
    with path.open() as file:
        history = read_history(file)
    assert len(history.operations) > operations
    return [anomaly for anomaly in check_history(history) if anomaly.name not in KNOWN]


@pytest.fixture
def killed_server(tmp_path: Path) -> Server:
    return lasting_server(tmp_path / "server", {"group.initial.rebalance.delay.ms": "0"})


def test_a_history_with_kills_has_no_anomaly(killed_server: Server, tmp_path: Path, seed: int) -> None:
    with killed_server as server:
        assert anomalies_of(server, tmp_path, seed, 15, 2) == []


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_histories_with_kills_have_no_anomaly(killed_server: Server, tmp_path: Path, seed: int) -> None:
    with killed_server as server:
        for number in range(HISTORIES):
            assert anomalies_of(server, tmp_path, seed + number, 60, 5) == [], f"seed {seed + number}"
            print(f"{number + 1} histories", flush=True)


def moves(nodes: Any, topic: str, choose: Random) -> Callable[[], None]:
    """Return what moves leaders and coordinators, and stops one node for a moment, at random times."""

    def disturb() -> None:
        time.sleep(choose.uniform(0.1, 0.6))
        node_id = choose.choice([each["id"] for each in nodes.describe()])
        kind = choose.random()
        if kind < 0.4:
            nodes.move_leader(topic, choose.randrange(PARTITIONS), node_id)
        elif kind < 0.7:
            nodes.move_coordinator(f"{topic}-txn-{choose.choice((1, 2))}", node_id)
        else:
            nodes.stop(node_id)
            time.sleep(choose.uniform(0.1, 1))
            nodes.start(node_id)

    return disturb


def check_nodes(directory: Path, seed: int, operations: int, histories: int) -> None:
    """Record histories of three nodes; each must be without an anomaly."""
    brokers = GatewayCluster if TARGET == "gateway" else KafkaCluster
    with EmbeddedServer(nodes=3) if TARGET == "klamm" else brokers(directory) as cluster:
        for number in range(seed, seed + histories):
            disturb = moves(cluster.nodes, f"history-{number}", Random(number))
            assert _anomalies_of(cluster, directory, number, operations, disturb, 3) == [], f"seed {number}"
            print(f"seed {number}: no anomaly", flush=True)


def test_a_history_of_nodes_whose_leaders_move_has_no_anomaly(tmp_path: Path, seed: int) -> None:
    check_nodes(tmp_path, seed, 15, 1)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_histories_of_nodes_whose_leaders_move_have_no_anomaly(tmp_path: Path, seed: int) -> None:
    check_nodes(tmp_path, seed, 60, HISTORIES)


class FaultyServer(KlammServer):
    """klamm with a planted fault."""

    fault = ""

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("klamm")
        return [*command[:at], "tests.interop.histories.planted", self.fault, *command[at + 1 :]]

    def environment(self) -> dict[str, str]:
        environment = super().environment()
        environment["PYTHONPATH"] += os.pathsep + str(ROOT)
        return environment


@pytest.mark.slow
@pytest.mark.interpreted
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_checker_names_a_planted_fault(fault: Callable[[], None], tmp_path: Path, seed: int) -> None:
    server = FaultyServer(tmp_path / "server", port=lasting_port())
    server.fault = fault.__name__
    with server:
        for number in range(HISTORIES):
            found = {one.name for one in anomalies_of(server, tmp_path, seed + number, 30, 2)}
            if found & FAULTS[fault]:
                print(f"{fault.__name__}: {number + 1} histories: {', '.join(sorted(found))}", flush=True)
                return
    pytest.fail(f"not found in {HISTORIES} histories")
