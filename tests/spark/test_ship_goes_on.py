"""Tests of `klamm audit ship` without `--once`: it ships segments as they are sealed, and resumes after SIGTERM."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from klamm_spark.settings.spark import Pipeline, read_pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.sessions import table_of
from tests.spark.test_cluster import environment

EVENTS = 2_400
PARTS = 6
DEADLINE_S = 150
FILE = """\
[audit]
spool = "spool"

[audit.spark]
lake = "lake"
master = "none"
trigger_interval_ms = 200
"""


def wait_until(holds, alive, what):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert alive(), what()
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def _in_a_process(tmp_path, write, size):
    """Run `ship` in its own process, which ends in the middle of the work."""
    write()
    log = tmp_path / "said"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "klamm", "audit", "ship", "klamm.toml"],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(),
            cwd=tmp_path,
        )
    try:

        def alive():
            return process.poll() is None

        wait_until(lambda: f"batch 0: {size} events" in log.read_text(), alive, log.read_text)
        write()
        wait_until(lambda: log.read_text().count(f": {size} events") == 2, alive, log.read_text)
        write()
        wait_until(lambda: log.read_text().count(f": {size} events") == 3, alive, log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert f"shipped {3 * size:,} events in 3 batches" in log.read_text()
    assert "no segments left to ship" in log.read_text()
    assert "ERROR" not in log.read_text(), "an end in order looks like one"


def _in_this_process(pipeline, write):
    """Run `ship` again in this process. Return its result."""
    from klamm_spark.lake import ship

    said, stop, left = [], threading.Event(), []

    def go_on():
        own = Pipeline(pipeline.spool, pipeline.settings)
        left.append(ship.run(None, own, once=False, say=said.append, stop=stop))

    def catch_up(batches):
        """Wait until the lake has all events of the spool."""
        wait_until(lambda: sum("batch " in line for line in said) == batches, thread.is_alive, lambda: str(said))

    write()
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        catch_up(1)
        write()
        catch_up(2)
        write()
        catch_up(3)
    finally:
        stop.set()
        thread.join(60)
    return left


@pytest.mark.timeout(400)
def test_events_are_right_while_segments_arrive_and_after_a_restart(tmp_path):
    from klamm_spark.lake.layout import Lake

    (tmp_path / "klamm.toml").write_text(FILE)
    pipeline = read_pipeline(tmp_path / "klamm.toml", {})
    lake = Lake(pipeline.settings.lake)
    events = list(sample_events(EVENTS, step_us=250_000))
    size = EVENTS // PARTS
    parts = iter([events[first : first + size] for first in range(0, EVENTS, size)])

    def write():
        write_sample_spool(pipeline.spool, next(parts))

    _in_a_process(tmp_path, write, size)
    assert _in_this_process(pipeline, write) == [0]
    assert list(parts) == []
    seqs = table_of(lake).column("seq").to_pylist()
    assert sorted(seqs) == list(range(EVENTS))
