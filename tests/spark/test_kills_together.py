"""The server killed five times, and the driver too, while clients go on: the lake has what is in the spool, once."""

from __future__ import annotations

import random
import time

import pytest

from tests.peers.audit_load import Load, audit_settings, read_events
from tests.peers.klamm_server import KlammServer
from tests.spark.conftest import settings_of
from tests.spark.sessions import table_of
from tests.spark.test_driver_kills import Driver

SERVER_KILLS = 5


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("driver_kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_durable_events_reach_the_lake_once(tmp_path, driver_kills, seed):
    from klamm_spark.lake import verify
    from klamm_spark.lake.layout import Lake
    from klamm_spark.settings.spark import Pipeline

    choose = random.Random(seed)
    spool, lake = tmp_path / "spool", Lake(tmp_path / "lake")
    killed = 0
    with KlammServer(tmp_path / "server", audit_settings(spool)) as server:
        for life in range(SERVER_KILLS):
            load = Load(server.port, life)
            time.sleep(choose.uniform(0.4, 1.2))
            server.kill9()
            load.join()
            server.start()
            while killed < driver_kills * (life + 1) / SERVER_KILLS:
                driver = Driver(spool, lake.root)
                try:
                    driver.wait_for_uncommitted_data(after=choose.choice((0, 1)))
                    time.sleep(choose.uniform(0, 0.5))
                finally:
                    driver.kill()
                killed += 1
        server.stop()
    Driver(spool, lake.root).run_to_the_end()
    streams = {folder.name: read_events(folder) for folder in spool.iterdir() if folder.is_dir()}
    written = sorted((event["boot"], event["seq"]) for events in streams.values() for event in events)
    rows = table_of(lake).select(["boot", "seq"]).to_pylist()
    assert len({event["boot"] for event in streams["node-1"]}) == SERVER_KILLS + 1
    assert sorted((row["boot"], row["seq"]) for row in rows) == written
    said: list[str] = []
    assert verify.run(None, Pipeline(spool, settings_of(lake.root)), say=said.append) == 0, said
