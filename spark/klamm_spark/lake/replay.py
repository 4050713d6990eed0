"""`klamm audit replay`: lines of the quarantine that this klamm can read become events.

They are appended to the table at once, or none of them: so each of them gets into the lake once, also if the command is
killed or run again. The quarantine keeps the lines.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from klamm_spark.lake.layout import FORMAT, PARTITIONS, Lake
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.spark.schema import parse_lines, with_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.settings.spark import Pipeline

FOLDER: Final = "replayed"
"""Begins the name that replayed rows have for a segment."""


def run(spark: SparkSession, pipeline: Pipeline, *, say: Callable[[str], None]) -> int:
    """Append the events; the exit code. Raises LakeError. `ship` must not run."""
    lake = Lake.of(pipeline.settings, spark)
    with only_writer(lake):
        bad_lines = lake.read_quarantine(spark).count()
        lines = readable_lines(spark, lake).cache()
        try:
            count = lines.count()
            if count:
                source = F.lit(f"{FOLDER}-{uuid.uuid4()}.jsonl").alias("source_file")
                rows = with_time(
                    parse_lines(lines.select("value", source, F.current_timestamp().alias("shipped_time")))
                )
                writer = rows.write.format(FORMAT).mode("append").partitionBy(*PARTITIONS)
                writer.option("mergeSchema", "true").save(str(lake.events))
        finally:
            lines.unpersist()
    if count:
        say(f"{count:,} lines of the quarantine are events, and are in the lake as such now")
    say(f"{bad_lines - count:,} lines of the quarantine are no events, or are in the lake already")
    return 0


def readable_lines(spark: SparkSession, lake: Lake) -> DataFrame:
    """The lines of the quarantine that are events of this klamm and not in the lake: the column `value`."""
    lines = lake.read_quarantine(spark).select(F.col("bad_line").alias("value"), F.col("bad_line").alias("line"))
    events = parse_lines(lines).where("event_id is not null").select("event_id", F.col("line").alias("value"))
    known = lake.read_events(spark).select("event_id")
    return events.dropDuplicates(["event_id"]).join(known, "event_id", "left_anti").select("value")
