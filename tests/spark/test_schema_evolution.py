"""A later klamm, whose events have one more field, goes on with the lake of this one."""

from tests.spark.conftest import settings_of
from tests.spark.test_ship import V1, write_lines


def test_new_field_becomes_a_column(spark, ship, tmp_path, monkeypatch):
    from pyspark.sql.types import StringType, StructField, StructType

    from klamm_spark.lake.layout import Lake
    from klamm_spark.spark import schema as spark_schema

    lines = V1.read_text().splitlines()
    write_lines(tmp_path / "spool", lines)
    settings, lake = settings_of(tmp_path / "lake"), Lake(tmp_path / "lake")
    ship(tmp_path / "spool", settings)

    added = StructField("later", StringType())
    for name in ("EVENT_SCHEMA", "LAKE_SCHEMA"):
        monkeypatch.setattr(spark_schema, name, StructType([*getattr(spark_schema, name).fields, added]))
    newer = lines[0].replace("019b8ff8d000c0ffee00", "019b8ff8d001c0ffee00").replace("{", '{"later":"yes",', 1)
    write_lines(tmp_path / "spool", [newer])
    assert "shipped 1 events" in "\n".join(ship(tmp_path / "spool", settings))
    found = [(row.boot, row.later) for row in lake.read_events(spark).select("boot", "later").collect()]
    assert sorted(found, key=str) == [
        *[("019b8ff8d000c0ffee00", None)] * len(lines),
        ("019b8ff8d001c0ffee00", "yes"),
    ]
