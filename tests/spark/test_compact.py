"""Tests that `klamm audit compact` reduces the number of files and changes nothing else."""

from contextlib import closing

from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import settings_of

EVENTS = 400


def test_small_files_become_few_and_the_events_stay_the_same(ship, tmp_path):
    from klamm_spark.lake import compact, verify
    from klamm_spark.lake.files import files_of
    from klamm_spark.lake.layout import Lake
    from klamm_spark.lake.seals import read_seals
    from klamm_spark.queries.event_views import DuckDbViews, Period

    settings = settings_of(tmp_path / "lake", max_files_per_trigger=1)
    pipeline, lake = Pipeline(tmp_path / "spool", settings), Lake(tmp_path / "lake")
    events = list(sample_events(EVENTS))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=EVENTS // 2)
    ship(tmp_path / "spool", settings)
    denied = sorted(e["event_id"] for e in events if e["outcome"] == "denied" and e["kind"] == "request")
    said, seals = [], read_seals(lake)
    assert compact.run(pipeline, keep_hours=168, say=said.append) == 0
    assert f"{lake.events}: optimized; replaced files are kept for 168 hours" in said
    assert f"{lake.seals}: 2 files merged into 1" in said
    assert (len(list(lake.seals.glob("*.parquet"))), read_seals(lake)) == (1, seals)
    with closing(DuckDbViews(lake, Period())) as views:
        assert views.query("SELECT count(*) FROM events").rows == [(EVENTS,)]
        found = views.query("SELECT event_id FROM events WHERE outcome = 'denied' AND kind = 'request' ORDER BY 1").rows
    assert [event_id for (event_id,) in found] == denied
    assert len(list(lake.events.rglob("part-*.parquet"))) > len(files_of(lake)) == 1
    assert verify.run(None, pipeline, say=said.append) == 0, said


def test_all_readers_read_a_file_of_several_row_groups_alike(ship, tmp_path, monkeypatch):
    from klamm_spark.lake import compact, forget, verify
    from klamm_spark.lake.files import files_of, open_file
    from klamm_spark.lake.layout import Lake
    from klamm_spark.queries.event_views import DuckDbViews, Period

    monkeypatch.setattr(compact, "_MOST_GROUP_ROWS", 60)
    settings = settings_of(tmp_path / "lake", max_files_per_trigger=1)
    pipeline, lake = Pipeline(tmp_path / "spool", settings), Lake(tmp_path / "lake")
    events = list(sample_events(EVENTS))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=EVENTS // 4)
    ship(tmp_path / "spool", settings)
    said = []
    assert compact.run(pipeline, keep_hours=168, say=said.append) == 0
    (file,) = files_of(lake)
    with open_file(file) as parquet:
        assert parquet.num_row_groups > 4
    assert verify.run(None, pipeline, say=said.append) == 0, said
    with closing(DuckDbViews(lake, Period())) as views:
        named = views.query("SELECT count(*) FROM resources").rows
        assert views.query("SELECT count(*) FROM events").rows == [(EVENTS,)]
    assert named == [(sum(len(event.get("resources") or ()) for event in events),)]
    middle_us = events[EVENTS // 2]["time_us"]
    assert forget.run(pipeline, before_us=middle_us, say=said.append) == 0
    assert verify.run(None, Pipeline(None, settings), say=said.append) == verify.EXIT_UNPINNED, said


def test_statistics_of_all_columns_are_those_of_the_rows(ship, tmp_path):
    from klamm_spark.lake import compact, verify
    from klamm_spark.lake.files import files_of
    from klamm_spark.lake.layout import Lake

    settings = settings_of(tmp_path / "lake", max_files_per_trigger=1)
    pipeline, lake = Pipeline(tmp_path / "spool", settings), Lake(tmp_path / "lake")
    write_sample_spool(tmp_path / "spool", sample_events(EVENTS), events_per_segment=EVENTS // 2)
    ship(tmp_path / "spool", settings)
    lake.table().alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "-1"})
    said = []
    assert compact.run(pipeline, keep_hours=168, say=said.append) == 0
    (file,) = files_of(lake)
    assert {"time", "error_code", "total_time_ms"} <= file.committed[0].lowest.keys()
    assert verify.run(None, pipeline, say=said.append) == 0, said
    lake.table().create_checkpoint()
    assert verify.run(None, pipeline, say=said.append) == 0, said
