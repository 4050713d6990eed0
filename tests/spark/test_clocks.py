"""Tests of servers with wrong clocks: `ship` does not depend on the times of files."""

import os
import time
from collections import Counter

import pytest

from klamm_spark.lake.layout import Lake
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of
from tests.spark.sessions import table_of

DAY_S = 86_400


@pytest.mark.parametrize("days_off", [-400, 400])
def test_a_server_with_a_wrong_clock_does_not_affect_the_shipping_of_others(ship, tmp_path, days_off):
    settings = settings_of(tmp_path / "lake")
    for first_seq in (0, 10):
        for node, days in (("right", 0), ("wrong", days_off)):
            events = sample_events(10, node=node, first_seq=first_seq)
            (path,) = write_sample_spool(tmp_path / "spool", events)
            os.utime(path, times=(time.time() + days * DAY_S,) * 2)
        ship(tmp_path / "spool", settings)
    assert Counter(table_of(Lake(tmp_path / "lake"))["node"].to_pylist()) == {"right": 20, "wrong": 20}
