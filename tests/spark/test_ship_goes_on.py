"""`klamm audit ship` without `--once`: it takes what is sealed while it runs, and ends in order at SIGTERM."""

import os
import signal
import subprocess
import sys
import time

import pytest

from klamm_spark.samples import sample_events, write_sample_spool
from tests.spark.test_cluster import environment

DEADLINE_S = 150


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("default_compaction")
def test_it_ships_until_a_signal_comes(spark, tmp_path):
    from klamm_spark.lake import Lake

    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake", "parquet")
    write_sample_spool(spool, sample_events(100))
    command = [sys.executable, "-m", "klamm", "audit", "ship", "--spool", str(spool), "--lake", str(lake.root)]
    command += ["--no-aggregates", "--driver-memory", "1g", "--trigger-interval-ms", "200"]
    log = tmp_path / "said"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=environment()
        )
    try:
        wait_for(process, log, "batch 0: 100 events")
        write_sample_spool(spool, sample_events(50, first_seq=100))
        wait_for(process, log, ": 50 events")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert "shipped 150 events in 2 batches" in log.read_text()
    assert "nothing behind the spool" in log.read_text()
    rows = lake.read_events(spark).select("seq").collect()
    assert sorted(row.seq for row in rows) == list(range(150))


def wait_for(process, log, text):
    deadline = time.monotonic() + DEADLINE_S
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
