"""Sigma rules find in Spark what they find in DuckDB: each word of Sigma, and each detection on what it is for."""

import json

import pytest

from klamm_spark.findings.detections import Finding, own_detections
from klamm_spark.findings.sigma import compiled
from klamm_spark.queries.event_views import DuckDbViews, Period, SparkViews
from tests.unit.audit.sigma_rules import EVENTS, found_by, numbered, one_attack, write_rules


@pytest.fixture
def both(spark, tmp_path):
    """`both(events)`: the views over the same events in DuckDB and in Spark."""
    from pyspark.sql import functions as F

    from klamm_spark.spark.schema import parse_lines

    made = []

    def load(events):
        path = tmp_path / f"{len(made)}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in events))
        made.append(DuckDbViews(None, Period()))
        made[-1].add([str(path)])
        session = spark.newSession()
        rows = parse_lines(session.read.text(str(path))).withColumn("date", F.to_date(F.timestamp_micros("time_us")))
        return made[-1], SparkViews(session, rows, Period())

    yield load
    for views in made:
        views.close()


def test_each_word_finds_in_spark_what_it_says(both, tmp_path):
    wanted = write_rules(tmp_path)
    _, views = both(numbered(EVENTS))
    rules = compiled(tmp_path)
    # A query each would take minutes.
    queries = [f"SELECT '{one.name}' AS rule, * FROM (\n{one.sql}\n)" for one in rules]
    rows = views.query("\nUNION ALL\n".join(queries)).rows
    found = {one.name: [Finding(*row[1:]) for row in rows if row[0] == one.name] for one in rules}
    assert {name: found_by(name, findings) for name, findings in found.items()} == wanted


@pytest.mark.slow
def test_each_detection_finds_the_same_in_both(both):
    duckdb, spark = both(one_attack())
    found = {one.name: one.run(duckdb) for one in own_detections()}
    assert all(found.values())
    assert {one.name: one.run(spark) for one in own_detections()} == found
