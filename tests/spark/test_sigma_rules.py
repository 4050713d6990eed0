"""Sigma rules find the same in Spark as in DuckDB: each word of Sigma, and each detection with its attack."""

import json

import pytest

from klamm_spark.findings.detections import own_detections
from klamm_spark.findings.sigma import compiled
from klamm_spark.queries.event_views import DuckDbViews, Period, SparkViews
from tests.audit_spool import events_of
from tests.unit.audit.honest_day import HonestDay
from tests.unit.audit.sigma_rules import EVENTS, found_by, numbered, one_attack, write_rules

# Spark takes half a second to plan a query, and these are a hundred. test_lake_watch.py runs each rule once.
pytestmark = pytest.mark.slow


@pytest.fixture
def both(spark, tmp_path):
    """Return `both(events)`, which returns the views over the same events in DuckDB and in Spark."""
    from pyspark.sql import functions as F

    from klamm_spark.spool.event_lines import EventLines

    made = []

    def load(events):
        path = tmp_path / f"{len(made)}.jsonl"
        lines = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events)
        path.write_text(lines)
        made.append(DuckDbViews(None, Period()))
        made[-1].add([str(path)])
        session = spark.newSession()
        rows = session.createDataFrame(EventLines().rows_of(lines.encode()))
        rows = rows.withColumn("date", F.to_date(F.timestamp_micros("time_us")))
        return made[-1], SparkViews(session, rows, Period())

    yield load
    for views in made:
        views.close()


def test_each_word_of_sigma_finds_its_events_in_spark(both, tmp_path):
    wanted = write_rules(tmp_path)
    _, views = both(numbered(EVENTS))
    assert {one.name: found_by(one.name, one.run(views)) for one in compiled(tmp_path)} == wanted


def test_each_detection_finds_the_same_in_both(both):
    duckdb, spark = both(one_attack())
    found = {one.name: one.run(duckdb) for one in own_detections()}
    assert all(found.values())
    assert {one.name: one.run(spark) for one in own_detections()} == found


@pytest.mark.timeout(1800)
def test_a_day_of_normal_traffic_has_no_critical_finding_in_either_engine(both, tmp_path):
    day = HonestDay(tmp_path)
    day.play()
    duckdb, spark = both(events_of(day.spool))
    found = {one.name: one.run(duckdb) for one in own_detections()}
    assert {one.name: one.run(spark) for one in own_detections()} == found
    assert [one.name for one in own_detections() if one.severity == "critical" and found[one.name]] == []
