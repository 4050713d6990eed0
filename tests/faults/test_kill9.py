"""`kill -9` under load: acknowledged records exist once and in order, and committed offsets, topics and configs exist.

A group reads during all kills, and misses no record. CI makes fifty kills. `-m slow -s` makes 1,000, or the number in
the environment variable `KLAMM_KILLS`, and prints the checked numbers after each fifty.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.faults.kills.season import Season
from tests.peers.target import TARGET, lasting_server

pytestmark = [pytest.mark.faults, pytest.mark.interop]
KILLS = 50 if TARGET == "klamm" else 5
"""Maximum time of a restart. Apache Kafka, with which the test itself is checked, takes up to ten seconds."""
MANY_KILLS = int(os.environ.get("KLAMM_KILLS", "1000"))
SETTINGS = {"log.segment.bytes": str(1 << 20), "group.initial.rebalance.delay.ms": "0"}


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    with lasting_server(tmp_path / "server", SETTINGS) as server:
        checked = Season(server, 0, random.Random(seed)).run(KILLS)
    assert min(checked) > 0, "nothing was checked"


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_lost_in_a_thousand_kills(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    started_s, kills, checked = time.monotonic(), 0, (0, 0, 0)
    with lasting_server(tmp_path / "server", SETTINGS) as server:
        for number in range(-(-MANY_KILLS // KILLS)):
            now = min(KILLS, MANY_KILLS - kills)
            season = Season(server, number, moments).run(now)
            kills += now
            checked = tuple(before + more for before, more in zip(checked, season, strict=True))
            records, commits, changes = checked
            print(
                f"{kills} kills in {time.monotonic() - started_s:,.0f} s: {records:,} records, {commits:,} commits and"
                f" {changes:,} created and deleted topics checked",
                flush=True,
            )
