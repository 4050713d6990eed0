"""Small files become large ones under the eyes of readers, streams and a shipper that goes on."""

import time
from dataclasses import replace

import pytest

from klamm_spark.spark_settings import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of


def test_all_is_there_in_fewer_files_and_shipping_goes_on(spark, ship, tmp_path):
    from klamm_spark import compact
    from klamm_spark.lake import Lake, committed_files, orphan_files

    settings = settings_of(tmp_path / "lake", aggregates=False, max_files_per_trigger=1)
    lake = Lake(settings.lake, "parquet")
    spool = tmp_path / "spool"
    write_sample_spool(spool, sample_events(800), events_per_segment=100)
    ship(spool, settings)
    # A stream that has read all so far must not take compacted files for new rows.
    stream = lake.stream(spark).writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    stream.trigger(availableNow=True).start(str(tmp_path / "follower")).awaitTermination()
    before = set(committed_files(lake.events))
    said = []
    assert compact.run(spark, Pipeline(None, settings), keep_hours=1, say=said.append) == 0
    after = set(committed_files(lake.events))
    assert len(after) < len(before) / 2
    assert set(orphan_files(lake.events)) == before - after, "kept for those who still read them"
    assert sorted(row.seq for row in lake.read_events(spark).collect()) == list(range(800))

    write_sample_spool(spool, sample_events(400, first_seq=800), events_per_segment=100)
    ship(spool, settings)
    stream.trigger(availableNow=True).start(str(tmp_path / "follower")).awaitTermination()
    followed = spark.read.parquet(str(tmp_path / "follower")).select("seq").collect()
    assert sorted(row.seq for row in followed) == list(range(1200))
    assert sorted(row.seq for row in lake.read_events(spark).collect()) == list(range(1200))

    compact.delete_orphans(lake.events, older_than_s=60, now_s=time.time() + 120)
    assert orphan_files(lake.events) == []
    assert lake.read_events(spark).count() == 1200


def test_files_that_a_table_has_still_to_read_are_left_alone(spark, ship, tmp_path):
    from klamm_spark import compact
    from klamm_spark.lake import Lake, committed_files

    settings = settings_of(tmp_path / "lake", aggregates=False, max_files_per_trigger=1)
    lake = Lake(settings.lake, "parquet")
    write_sample_spool(tmp_path / "spool", sample_events(300), events_per_segment=50)
    ship(tmp_path / "spool", settings)
    lake.table_checkpoint("denials").mkdir(parents=True)
    before = set(committed_files(lake.events))
    settings = replace(settings, aggregates=True)
    compact.run(spark, Pipeline(None, settings), keep_hours=1, say=lambda line: None)
    assert set(committed_files(lake.events)) == before


def test_compaction_hides_nothing_from_tables_that_begin_or_go_on_later(spark, ship, tmp_path):
    from klamm_spark import compact
    from klamm_spark.lake import COMPACTED, Lake, committed_files
    from klamm_spark.tables import TABLES, start_table

    settings = settings_of(tmp_path / "lake", aggregates=False, max_files_per_trigger=1)
    lake = Lake(settings.lake, "parquet")
    (table,) = (table for table in TABLES if table.name == "denials")
    events = list(sample_events(1200))
    denied = [event["event_id"] for event in events if event["outcome"] == "denied" and event["kind"] == "request"]

    def go_on(first):
        write_sample_spool(tmp_path / "spool", events[first : first + 400], events_per_segment=100)
        ship(tmp_path / "spool", settings)
        assert compact.run(spark, Pipeline(None, settings), keep_hours=1, say=lambda line: None) == 0
        names = {path.name for path in committed_files(lake.events) if path.name.startswith(COMPACTED)}
        start_table(spark, lake, settings, table, once=True).awaitTermination()
        rows = lake.read(spark, lake.table("denials")).select("event_id").collect()
        found = sorted(row.event_id for row in rows)
        assert found == sorted(name for name in denied if int(name.rpartition("/")[2]) < first + 400)
        assert len(found) > 4
        return names

    # The table begins when all it should read is compacted; then it was away while more of that came.
    first, second = go_on(0), go_on(400)
    assert first
    assert second - first
    go_on(800)


def test_a_table_that_is_enabled_during_compaction_stops_it(spark, ship, tmp_path):
    from klamm_spark import compact
    from klamm_spark.lake import Lake, committed_files

    settings = settings_of(tmp_path / "lake", aggregates=False, max_files_per_trigger=1)
    lake = Lake(settings.lake, "parquet")
    write_sample_spool(tmp_path / "spool", sample_events(300), events_per_segment=50)
    ship(tmp_path / "spool", settings)
    before = set(committed_files(lake.events))
    answers = iter([{}, {"denials": before}])
    assert compact.compact_table(spark, lake.events, lambda: next(answers)) == (0, 0)
    assert set(committed_files(lake.events)) == before


def test_files_that_may_be_about_to_be_committed_are_kept(tmp_path):
    from klamm_spark import compact
    from klamm_spark.lake import LakeError

    for hours in (0, 0.99, float("nan")):
        with pytest.raises(LakeError, match="--keep-hours must be at least 1"):
            compact.run(None, Pipeline(None, settings_of(tmp_path)), keep_hours=hours, say=lambda line: None)
