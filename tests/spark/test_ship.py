"""Tests of `ship`: which lines of a spool reach the lake, and in which form."""

import json
from collections import Counter
from pathlib import Path

import cramjam
import pytest

from klamm_spark.errors import LakeError
from klamm_spark.events.event import FIELD_NAMES, SCHEMA_VERSION
from klamm_spark.lake import ship as shipping
from klamm_spark.lake import verify
from klamm_spark.lake.layout import Lake
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.settings.spark import Pipeline
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import BAD_LINES, EVENTS, reseal, settings_of
from tests.spark.sessions import events_of, rows_of, table_of

V1 = Path(__file__).with_name("events.v1.jsonl")


def write_lines(spool, lines):
    """Write a sealed segment with these lines, unchanged."""
    (path,) = write_sample_spool(spool, map(json.loads, lines))
    path.write_text("".join(line + "\n" for line in lines))
    reseal(sorted(spool.rglob("*.jsonl")))


def plain(row):
    """Return a row of the lake as the event that it was, without the columns that shipping has added."""
    found = row.asDict(recursive=True)
    return without_nulls({name: found[name] for name in FIELD_NAMES})


def without_nulls(values):
    """Return an event without its null fields."""
    return {
        name: list(map(without_nulls, value)) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


def test_each_event_is_in_the_lake_once_and_unchanged(spark, shipped):
    found = {row.seq: plain(row) for row in events_of(spark, shipped.lake).collect()}
    assert events_of(spark, shipped.lake).count() == len(found) == EVENTS
    assert [found[event["seq"]] for event in shipped.events] == shipped.events


def test_invalid_lines_are_kept_with_the_name_of_their_file(spark, shipped):
    rows = rows_of(spark, shipped.lake).where("date is null").collect()
    assert sorted(row.bad_line for row in rows) == sorted(BAD_LINES)
    assert {row.source_file.rpartition("-")[2] for row in rows} == {"00000000000000001000.jsonl"}


def test_the_lake_is_partitioned_by_date_and_hour(shipped):
    folders = {path.parent.relative_to(shipped.lake.events) for path in shipped.lake.events.rglob("*.parquet")}
    bad = "__HIVE_DEFAULT_PARTITION__"
    assert folders == {Path("date=2026-01-01/hour=0"), Path(f"date={bad}/hour={bad}")}


def test_progress_and_summary_show_the_counts(shipped):
    said = "\n".join(shipped.said)
    assert f"shipped {EVENTS:,} events in 2 batches" in said, "a copy of a segment adds nothing"
    assert f"{len(BAD_LINES)} lines are not events" in said
    assert "events/s" in said
    assert "no segments left to ship" in said


def test_the_bytes_of_a_batch_are_limited(ship, tmp_path):
    paths = write_sample_spool(tmp_path / "spool", sample_events(200), events_per_segment=50)
    sizes = [path.stat().st_size for path in paths]
    settings = settings_of(tmp_path / "lake", max_bytes_per_trigger=max(sizes) * 2)
    assert "shipped 200 events in 2 batches" in ship(tmp_path / "spool", settings)[-2]


def test_sparks_executors_write_the_same_lake(spark, tmp_path):
    events = list(sample_events(100))
    write_sample_spool(tmp_path / "spool", events, events_per_segment=25)
    said, settings = [], settings_of(tmp_path / "lake")
    assert shipping.run(spark, Pipeline(tmp_path / "spool", settings), once=True, say=said.append) == 0
    found = {row.seq: plain(row) for row in events_of(spark, Lake(tmp_path / "lake")).collect()}
    assert [found[event["seq"]] for event in events] == events
    assert verify.run(spark, Pipeline(tmp_path / "spool", settings), say=said.append) == 0, said


def test_a_second_run_ships_only_new_segments(ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    write_sample_spool(tmp_path / "spool", sample_events(100), events_per_segment=50)
    ship(tmp_path / "spool", settings)
    write_sample_spool(tmp_path / "spool", sample_events(30, first_seq=100))
    assert "shipped 30 events" in "\n".join(ship(tmp_path / "spool", settings))
    assert "shipped 0 events" in "\n".join(ship(tmp_path / "spool", settings))
    assert sorted(table_of(Lake(tmp_path / "lake"))["seq"].to_pylist()) == list(range(130))


@pytest.mark.parametrize(("suffix", "pack"), [(".zst", cramjam.zstd.compress), (".gz", cramjam.gzip.compress)])
def test_compressed_segments_are_shipped(ship, tmp_path, suffix, pack):
    write_sample_spool(tmp_path / "spool", sample_events(100), events_per_segment=50)
    for path in list((tmp_path / "spool").rglob("*.jsonl")):
        path.with_name(path.name + suffix).write_bytes(bytes(pack(path.read_bytes())))
        path.unlink()
    settings = settings_of(tmp_path / "lake")
    assert "shipped 100 events" in "\n".join(ship(tmp_path / "spool", settings))
    said: list[str] = []
    assert verify.run(None, Pipeline(tmp_path / "spool", settings), say=said.append) == 0, said


def test_segments_of_a_server_that_was_away_for_long_are_shipped(ship, tmp_path):
    settings = settings_of(tmp_path / "lake")
    hour_us = 3_600_000_000
    write_sample_spool(tmp_path / "spool", sample_events(40, node="here", start_us=2_000 * hour_us))
    ship(tmp_path / "spool", settings)
    write_sample_spool(tmp_path / "spool", sample_events(50, node="away", start_us=hour_us))
    ship(tmp_path / "spool", settings)
    assert Counter(table_of(Lake(tmp_path / "lake"))["node"].to_pylist()) == {"here": 40, "away": 50}


def test_events_of_version_1_load(spark, ship, tmp_path):
    write_lines(tmp_path / "spool", V1.read_text().splitlines())
    settings = settings_of(tmp_path / "lake")
    assert "lines are not events" not in "\n".join(ship(tmp_path / "spool", settings))
    rows = spark.read.format("delta").load(str(tmp_path / "lake" / "events")).orderBy("seq").collect()
    assert [plain(row) for row in rows] == [json.loads(line) for line in V1.read_text().splitlines()]


def test_a_lake_of_an_earlier_klamm_gets_the_new_columns(spark, ship, tmp_path):
    lake, spool = Lake(tmp_path / "lake"), tmp_path / "spool"
    columns = "1 schema_version, 'a/b/0' event_id, 'a' node, 'b' boot, 0L seq, 5L time_us, 'request' kind"
    rows = spark.sql(f"select {columns}, date'2026-01-01' date, 1 hour")
    rows.write.format("delta").partitionBy("date", "hour").save(str(lake.events))
    assert DuckDbViews(lake, Period()).query("SELECT event_id, gap_count FROM events").rows == [("a/b/0", None)]
    write_sample_spool(spool, sample_events(2))
    ship(spool, settings_of(lake.root))
    old, *_ = sorted(events_of(spark, lake).collect(), key=lambda row: row.node)
    assert (old.event_id, old.gap_count, old.resources) == ("a/b/0", None, None)


def test_newer_events_have_known_fields_as_columns_and_keep_their_line(spark, ship, tmp_path):
    (path,) = write_sample_spool(tmp_path / "spool", sample_events(3))
    this, later = (f'"schema_version":{version}' for version in (SCHEMA_VERSION, SCHEMA_VERSION + 1))
    lines = [line.replace(this, f'{later},"new":[true]') for line in path.read_text().splitlines()]
    lines[1] = lines[1].replace(f'"kind":"{json.loads(lines[1])["kind"]}"', '"kind":"dream"')
    path.write_text("".join(line + "\n" for line in lines))
    reseal([path])
    settings = settings_of(tmp_path / "lake")
    said = "\n".join(ship(tmp_path / "spool", settings))
    assert "3 events are of a later klamm than this one" in said
    rows = events_of(spark, Lake(tmp_path / "lake")).orderBy("seq").collect()
    assert [row.newer_line for row in rows] == lines
    for row, line in zip(rows, lines, strict=True):
        known = json.loads(line)
        assert known.pop("new") == [True]
        assert plain(row) == known
    said: list[str] = []
    assert verify.run(None, Pipeline(tmp_path / "spool", settings), say=said.append) == 0, said


def test_a_missing_spool_is_reported(ship, tmp_path):
    with pytest.raises(LakeError, match="there is no spool at"):
        ship(tmp_path / "nowhere", settings_of(tmp_path / "lake"))
