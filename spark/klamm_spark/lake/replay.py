"""`klamm audit replay`: lines of the quarantine that this klamm can read become events.

They are written as a segment into the folder `replayed` of the spool, which `ship` takes up as it takes up all others:
so each of them gets into the lake once, also if the command is killed or run again. The quarantine keeps the lines.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from klamm_spark.lake.layout import Lake
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.spark.schema import parse_lines
from klamm_spark.spool.reader import spool_of
from klamm_spark.storage.filesystems import AnyPath, move_file, path_of, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from klamm_spark.settings.spark import Pipeline

FOLDER: Final = "replayed"


def run(spark: SparkSession, pipeline: Pipeline, *, say: Callable[[str], None]) -> int:
    """Write the segment; the exit code. Raises LakeError. `ship` must not run."""
    lake = Lake.of(pipeline.settings, spark)
    with only_writer(lake):
        bad_lines = lake.read_quarantine(spark).count()
        folder = path_of(spool_of(pipeline), spark) / FOLDER
        lines = readable_lines(spark, lake, folder).cache()
        try:
            count = lines.count()
            if count:
                path = _write(lines, folder)
        finally:
            lines.unpersist()
    if count:
        say(f"{count:,} lines of the quarantine are events: klamm audit ship takes them from {path}")
    say(f"{bad_lines - count:,} lines of the quarantine are no events, or are in the lake or on their way already")
    return 0


def readable_lines(spark: SparkSession, lake: Lake, folder: AnyPath) -> DataFrame:
    """The lines of the quarantine that are events of this klamm: the column `value`.

    Without those that the lake has, or that have been written to `folder` and wait for `ship`.
    """
    lines = lake.read_quarantine(spark).select(F.col("bad_line").alias("value"), F.col("bad_line").alias("line"))
    events = parse_lines(lines).where("event_id is not null").select("event_id", F.col("line").alias("value"))
    known = lake.read_events(spark).select("event_id")
    for path in folder.glob("replayed-*.jsonl"):
        known = known.union(parse_lines(spark.read.text(str(path))).select("event_id"))
    return events.dropDuplicates(["event_id"]).join(known, "event_id", "left_anti").select("value")


def _write(lines: DataFrame, folder: AnyPath) -> AnyPath:
    folder.mkdir(parents=True, exist_ok=True)
    # Its files have no name of a segment: `ship` does not see them before they are whole.
    staging = folder / ".staging"
    lines.coalesce(1).write.mode("overwrite").text(str(staging))
    (part,) = (path for path in staging.glob("part-*.txt") if path.stat().st_size)
    written = move_file(part, folder, f"replayed-{uuid.uuid4()}.jsonl")
    remove_tree(staging)
    return written
