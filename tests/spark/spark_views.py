"""The views of events in Spark: what DuckDB finds, Spark finds by the same SQL."""

from __future__ import annotations

from typing import Any

from klamm_spark.queries.event_views import _ATTRIBUTE_COLUMNS, _RESOURCE_COLUMNS, FIELDS, Period, Result, _periods


class SparkViews:
    """The views over a lake; they use only what Spark Connect supports."""

    def __init__(self, spark: Any, rows: Any, period: Period) -> None:
        """`rows` are those of the lake's table `events`."""
        from pyspark.sql import functions as F

        self._spark = spark
        self.bad_lines = rows.where("date is null").count()
        names = [*(field.name for field in FIELDS), "requests"]
        kept = rows.where("date is not null").withColumn("requests", F.coalesce("repeat_count", F.lit(1)))
        for name, (since_us, until_us) in _periods(period).items():
            found = kept.where((F.col("time_us") >= since_us) & (F.col("time_us") < until_us))
            if since_us:
                # The filter on the partition keeps Spark from opening files of other days.
                found = found.where(F.col("date") >= F.to_date(F.timestamp_micros(F.lit(since_us))))
            found.select(*names).createOrReplaceTempView(name)
        outer = "LATERAL VIEW posexplode(resources) AS position, one"
        inner = ", ".join(f"one.{field.name}" for field in _RESOURCE_COLUMNS)
        self._view("resources", f"SELECT event_id, position, {inner} FROM events {outer}")
        self._view(
            "attributes",
            f"SELECT event_id, position, {_ATTRIBUTE_COLUMNS} FROM (SELECT event_id, position, "
            f"one.attributes AS list FROM events {outer}) LATERAL VIEW explode(list) AS two",
        )

    def _view(self, name: str, sql: str) -> None:
        self._spark.sql(sql).createOrReplaceTempView(name)

    def query(self, sql: str) -> Result:
        """Run one query."""
        frame = self._spark.sql(sql)
        return Result(tuple(frame.columns), [tuple(row) for row in frame.collect()])
