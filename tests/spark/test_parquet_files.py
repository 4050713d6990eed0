"""How the files of the lake are encoded, and that files of earlier builds stay readable beside them."""

from contextlib import contextmanager

import pyarrow.parquet as pq

from klamm_spark.lake import verify
from klamm_spark.lake.layout import Lake
from klamm_spark.settings.spark import Pipeline
from klamm_spark.spark.parquet import PARQUET_CONF, VALUES_DIFFER
from klamm_spark.spark.schema import LAKE_SCHEMA
from tests.audit_samples import sample_events, write_sample_spool
from tests.spark.conftest import EVENTS, settings_of

TIMES = ("time", "shipped_time")


def columns_of(lake):
    """The columns of each file, by their names."""
    for path in sorted(lake.events.rglob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            chunks = (file.metadata.row_group(group).column(at) for at in range(file.metadata.num_columns))
            yield {chunk.path_in_schema: chunk for chunk in chunks}


@contextmanager
def as_an_earlier_build(spark):
    names = {name.removeprefix("spark.hadoop.") for name in PARQUET_CONF}
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    for name in names - {"spark.sql.parquet.outputTimestampType"}:
        spark.conf.set(name, "1.0.0" if name.endswith("version") else "true")
    try:
        yield
    finally:
        for name, value in PARQUET_CONF.items():
            spark.conf.set(name.removeprefix("spark.hadoop."), value)


def test_every_column_without_a_dictionary_is_one_of_the_lake():
    assert set(VALUES_DIFFER) <= set(LAKE_SCHEMA.names)


def test_columns_whose_values_differ_have_no_dictionary_and_times_have_bounds(shipped):
    whole = [columns for columns in columns_of(shipped.lake) if columns["seq"].statistics.has_min_max]
    assert sum(columns["seq"].num_values for columns in whole) == EVENTS
    for columns in whole:
        assert not any(columns[name].has_dictionary_page for name in VALUES_DIFFER)
        assert columns["principal"].has_dictionary_page
        assert columns["seq"].encodings == ("DELTA_BINARY_PACKED",)
        assert "DELTA_BYTE_ARRAY" in columns["event_id"].encodings
        assert all(columns[name].physical_type == "INT64" for name in TIMES)
        assert columns["time"].statistics.min < columns["time"].statistics.max


def test_a_lake_of_an_earlier_build_goes_on(spark, ship, tmp_path):
    settings, events = settings_of(tmp_path / "lake"), list(sample_events(20))
    lake, pipeline, said = Lake(settings.lake), Pipeline(tmp_path / "spool", settings), []
    write_sample_spool(tmp_path / "spool", events[:10])
    with as_an_earlier_build(spark):
        ship(tmp_path / "spool", settings)
    write_sample_spool(tmp_path / "spool", events[10:])
    ship(tmp_path / "spool", settings)
    assert sorted(columns["time"].physical_type for columns in columns_of(lake)) == ["INT64", "INT96"]
    assert sorted(columns["seq"].has_dictionary_page for columns in columns_of(lake)) == [False, False]
    rows = lake.read_events(spark)
    assert sorted(row.seq for row in rows.collect()) == list(range(20))
    last_us = events[-1]["time_us"]
    assert rows.where(f"time >= timestamp_micros({last_us})").count() == 1
    assert rows.where("unix_micros(time) = time_us").count() == 20
    assert verify.run(spark, pipeline, say=said.append) == 0, said
