"""`kill -9` again and again while the audit writes: what was due on the disk is there, once, and losses are told."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from klamm.testing import RawClient
from klamm.wire.messages.api_versions import ApiVersionsRequest
from klamm_spark.spool_layout import NO_CHAIN, Seal, chain_of, open_segments, sealed_segments
from tests.peers.klamm_server import KlammServer
from tests.peers.server import HOST

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
FSYNC_INTERVAL_S = 0.2
GRACE_S = 0.4
"""For a writer that has to wait for a busy machine."""
LONGEST_LIFE_S = 1.6
CLIENTS = 2


class Load:
    """Clients that send one request after the other until the server dies, and note when each was answered."""

    def __init__(self, port: int, life: int) -> None:
        self.answered: dict[tuple[str, int], float] = {}
        """When, by client id and correlation id."""
        self._threads = [
            threading.Thread(target=self._run, args=(port, f"life-{life}-{number}")) for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, port: int, client_id: str) -> None:
        with contextlib.suppress(OSError), RawClient((HOST, port), client_id=client_id) as client:
            for correlation_id in itertools.count(1):
                client.call(ApiVersionsRequest("kill9", "1"), 3)
                self.answered[client_id, correlation_id] = time.monotonic()
                time.sleep(0.001)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def read(folder: Path) -> list[dict[str, Any]]:
    """Every event of the spool, in order; each line must be one."""
    return [json.loads(line) for path in sealed_segments(folder) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_no_durable_event_is_lost_or_doubled(tmp_path: Path, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"moments of death from seed {seed}")
    moments = random.Random(seed)
    settings = {
        "listeners.default.observers": "audit",
        "listeners.default.audit.spool": str(tmp_path / "spool"),
        "listeners.default.audit.node": "node-1",
        "listeners.default.audit.aggregate_above_per_second": "-1",
        "listeners.default.audit.flush_interval_ms": "10",
        "listeners.default.audit.fsync_interval_ms": str(int(FSYNC_INTERVAL_S * 1000)),
        "listeners.default.audit.segment_age_ms": "150",
    }
    due: set[tuple[str, int]] = set()
    with KlammServer(tmp_path / "server", settings) as server:
        for life in range(rounds):
            load = Load(server.port, life)
            time.sleep(moments.uniform(FSYNC_INTERVAL_S + GRACE_S, LONGEST_LIFE_S))
            killed = time.monotonic()
            server.kill9()
            load.join()
            limit = killed - FSYNC_INTERVAL_S - GRACE_S
            due.update(key for key, answered in load.answered.items() if answered <= limit)
            server.start()
    folder = tmp_path / "spool" / "node-1"
    events = read(folder)
    found = Counter(
        (event["client_id"], event["correlation_id"])
        for event in events
        if event["kind"] == "request" and str(event.get("client_id")).startswith("life-")
    )
    assert len(due) > 10 * rounds
    assert due - found.keys() == set()
    assert set(found.values()) == {1}
    assert len({event["event_id"] for event in events}) == len(events)
    _sequences_have_no_hole(events)
    _crashes_are_told(events, rounds)
    _seals_fit(folder)


def _sequences_have_no_hole(events: list[dict[str, Any]]) -> None:
    by_boot: dict[str, list[int]] = {}
    for event in events:
        by_boot.setdefault(event["boot"], []).append(event["seq"])
    assert all(seqs == list(range(len(seqs))) for seqs in by_boot.values())
    assert list(by_boot) == sorted(by_boot)


def _crashes_are_told(events: list[dict[str, Any]], rounds: int) -> None:
    gaps = [event for event in events if event["kind"] == "audit_gap"]
    last_of = {event["boot"]: event["seq"] for event in events}
    assert len(gaps) == rounds
    for gap in gaps:
        assert gap["action"] in ("unclean_stop", "torn_tail")
        assert gap["gap_first_seq"] == last_of.get(gap["gap_boot"], -1) + 1


def _seals_fit(folder: Path) -> None:
    assert open_segments(folder) == []
    chain = NO_CHAIN
    for path in sealed_segments(folder):
        seal = Seal.read(folder / f"{path.stem}.seal")
        assert seal.events == len(path.read_bytes().splitlines())
        assert seal.previous_chain == chain
        chain = seal.chain
        assert chain == chain_of(seal.previous_chain, seal.sha256)
