"""Gaps and orphans are named; what was told of is told apart from what nobody told."""

import pytest

from klamm_spark.ranges import Ranges
from klamm_spark.samples import sample_events, write_sample_spool
from klamm_spark.spark_settings import Pipeline
from tests.spark.conftest import EVENTS, settings_of

BOOT = "019b8ff8d000c0ffee00"


@pytest.fixture
def verify(spark):
    def run(pipeline):
        from klamm_spark import verify

        said = []
        return verify.run(spark, pipeline, say=said.append), said

    return run


def test_a_lake_that_holds_all_is_sound(shipped, verify):
    code, said = verify(shipped.pipeline)
    assert code == 0
    assert f"node-1/{BOOT}: spool {EVENTS:,} events (0-{EVENTS - 1}), lake {EVENTS:,} events (0-{EVENTS - 1})" in said
    assert "quarantine: 4 lines that are no events" in said


def test_what_is_missing_where_is_named(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake", aggregates=False)
    gap = {"kind": "audit_gap", "action": "dropped", "outcome": "error", "gap_boot": BOOT}
    events = list(sample_events(100))
    events[60] = {key: events[60][key] for key in ("schema_version", "event_id", "node", "boot", "seq", "time_us")}
    events[60] |= gap | {"gap_first_seq": 50, "gap_last_seq": 54, "gap_count": 5}
    events = [event for event in events if event["seq"] not in (20, *range(50, 55))]
    write_sample_spool(tmp_path / "spool", events)
    ship(tmp_path / "spool", settings)
    write_sample_spool(tmp_path / "spool", sample_events(10, first_seq=100))
    orphan = tmp_path / "lake" / "events" / "date=2026-01-01" / "hour=0" / "part-orphan.parquet"
    orphan.write_bytes(b"left by a driver")
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert code == 1
    assert "  not shipped: 100-109" in said
    assert "  lost, and no audit_gap tells why: 20" in said
    assert "  told by audit_gap: 50-54" in said
    assert f"orphan: {orphan} is not in the commit log, and read by nobody" in said


def test_what_retention_took_from_the_spool_is_no_fault(ship, verify, tmp_path):
    settings = settings_of(tmp_path / "lake", aggregates=False)
    first, _ = write_sample_spool(tmp_path / "spool", sample_events(20), events_per_segment=10)
    ship(tmp_path / "spool", settings)
    first.unlink()
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert (code, "  gone from the spool: 0-9" in said) == (0, True)


def test_an_event_that_is_there_twice_is_found(spark, verify, ship, tmp_path):
    settings = settings_of(tmp_path / "lake", aggregates=False, deduplicate_hours=0)
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(5))
    (tmp_path / "spool" / "copy").mkdir()
    (tmp_path / "spool" / "copy" / path.name).write_bytes(path.read_bytes())
    ship(tmp_path / "spool", settings)
    code, said = verify(Pipeline(tmp_path / "spool", settings))
    assert (code, "  more than once in the lake: 0-4" in said) == (1, True)


def test_comparing_without_spark():
    from klamm_spark.verify import Life, compare

    life = Life("n", "b")
    found = compare({life: Ranges([(0, 9), (20, 29)])}, {life: Ranges([(5, 9)])}, {life: Ranges([(10, 12)])}, {})[life]
    assert (found.not_shipped, found.told) == (Ranges([(0, 4), (20, 29)]), Ranges([(10, 12)]))
    assert (found.lost, found.sound) == (Ranges([(13, 19)]), False)
