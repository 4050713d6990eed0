"""The driver is killed with SIGKILL, at random moments and between a data file and its commit: each event exists once.

The tests compare sets of sequence numbers, which they read through the commit log, and also run `klamm audit verify`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.sessions import table_of

EVENTS = 3_000
SEGMENTS = 6
DEADLINE_S = 240
ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """`klamm audit ship --once` in its own process, with one segment per batch."""

    def __init__(self, spool: Path, lake: Path) -> None:
        command = [sys.executable, "-m", "klamm", "audit", "ship", "--once", "--master", "none"]
        command += ["--spool", str(spool), "--lake", str(lake), "--max-files-per-trigger", "1"]
        self.events = lake / "events"
        roots = [entry for entry in sys.path if entry.startswith(str(ROOT)) and "site-packages" not in entry]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(roots)},
        )

    def kill(self) -> None:
        """Kill the driver."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def run_to_the_end(self) -> None:
        _, said = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, said.decode()

    def wait_for_uncommitted_data(self, after: int) -> bool:
        """Wait until a data file has content and no commit names the file. Return False if the driver has ended before.

        The driver must have committed `after` batches by then.
        """
        committed = len(self.committed())
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            named = self.committed()
            if len(named) >= committed + after and any(name not in named for name in self.data_files()):
                return True
            time.sleep(0.002)
        return False

    def data_files(self) -> list[str]:
        return [path.name for path in self.events.rglob("part-*.parquet") if path.stat().st_size > 0]

    def committed(self) -> set[str]:
        """Return the names of data files in the commits."""
        names = set()
        for log in self.events.glob("_delta_log/*.json"):
            for line in log.read_text().splitlines():
                path = json.loads(line).get("add", {}).get("path")
                names |= {path.rpartition("/")[2]} if path else set()
        return names


def survives(tmp_path, kills, seed, segments=SEGMENTS):
    from klamm_spark.lake import verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.settings.spark import Pipeline

    choose = random.Random(seed)
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    write_sample_spool(spool, sample_events(EVENTS), events_per_segment=EVENTS // segments)
    killed = 0
    for number in range(kills):
        driver = Driver(spool, lake.root)
        try:
            # The first kill happens in an empty lake. Most later kills come after one batch, or before the first.
            if not driver.wait_for_uncommitted_data(after=choose.choice((0, 0, 1)) if number else 0):
                break
            if number % 3 == 2:
                time.sleep(choose.uniform(0, 1.5))
        finally:
            driver.kill()
        killed += 1
    Driver(spool, lake.root).run_to_the_end()
    rows = table_of(lake).column("seq").to_pylist()
    assert sorted(rows) == list(range(EVENTS))
    said: list[str] = []
    assert verify.run(None, Pipeline(spool, settings_of(lake.root)), say=said.append) == 0, said
    return killed


@pytest.mark.timeout(900)
def test_each_event_is_in_the_lake_once_after_kills(tmp_path):
    assert survives(tmp_path, 3, seed=7) == 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_kills_lose_and_repeat_no_event(tmp_path, seed):
    assert survives(tmp_path, 10, seed=seed, segments=15) >= 5
