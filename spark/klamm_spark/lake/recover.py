"""`klamm audit recover`: gives a lake a new checkpoint for `ship` after the old one was lost or torn.

Without its checkpoint, `ship` would lose or repeat events: a Parquet table ignores every batch whose number is in its
commit log, and a Delta table accepts all events again. The rows of the lake name the segments they come from. So a new
checkpoint is built that names those segments as shipped, and the commit log of a Parquet table gets new batch numbers.

What a torn file of the commit log has committed leaves the table, and `ship` ships it again: none of it is marked as
shipped before the disk has that file, so the spool still has it. So does a commit that was not synced, if a file of
rows is cut off.

A recovery that is killed can be started again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake, last_batch, renumber_log, restore_log, write_log
from klamm_spark.lake.ship import events_of, read_segments
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.lake.synced import cut_files, tear_unsynced_commits
from klamm_spark.lake.torn import DELTA_COMMIT
from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spool.reader import SEGMENT_GLOB, require_spool, spool_of
from klamm_spark.storage.filesystems import AnyPath, move_file, path_of, remove_tree, replace_durably

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def run(spark: SparkSession, pipeline: Pipeline, *, say: Callable[[str], None]) -> int:
    """Recover what has no checkpoint; the exit code. Raises LakeError. `ship` must not run."""
    settings = pipeline.settings
    spool, lake = path_of(spool_of(pipeline), spark), Lake.of(settings, spark)
    require_spool(spool)
    with only_writer(lake):
        return _run(spark, spool, lake, settings, say=say)


def _run(
    spark: SparkSession, spool: AnyPath, lake: Lake, settings: SparkSettings, *, say: Callable[[str], None]
) -> int:
    restore_log(lake.events)
    _mend(lake, say)
    lake.require_events()
    if lake.checkpoint_problem() is None:
        say(f"{lake.ship_checkpoint} is in order")
    else:
        count = recover_events(spark, spool, lake, settings)
        say(f"{lake.ship_checkpoint} was built again: {count:,} segments of the spool are shipped already")
    return 0


def _mend(lake: Lake, say: Callable[[str], None]) -> None:
    """Take what a power cut has torn out of the commit log. Raises LakeError."""
    lake.require_sink()
    cut = sorted(set(cut_files(lake)))
    for path in cut:
        say(f"{path} is cut off, as a power cut leaves a file")
    if cut:
        tear_unsynced_commits(lake)
    torn = lake.torn_commits()
    first = lake.events / "_delta_log" / DELTA_COMMIT.format(0)
    if first in torn:
        raise LakeError(
            f"{first} is torn, and nothing of the table can be read: move {lake.events} and {lake.ship_checkpoint} "
            "away, and klamm audit ship ships what the spool has"
        )
    # As long as it is there, Spark takes the batches for shipped.
    is_wrong = bool(torn) or (not lake.has_events() and lake.checkpoint_problem() is not None)
    if is_wrong and lake.ship_checkpoint.is_dir():
        remove_tree(lake.ship_checkpoint)
    for path in torn:
        say(f"{path} is torn, as a power cut leaves a file: what it has committed is shipped again")
    if torn:
        if lake.sink == "delta":
            _mend_delta_log(torn)
        else:
            renumber_log(lake.events, 0, torn)


def _mend_delta_log(torn: Sequence[Path]) -> None:
    for path in torn:
        # A commit of nothing: Delta reads no log with a gap.
        nothing = {"timestamp": time.time_ns() // 1_000_000, "operation": "klamm audit recover"}
        replace_durably(path, json.dumps({"commitInfo": nothing | {"operationParameters": {}}}) + "\n")
    for sums in torn[0].parent.glob("[0-9]*.crc"):
        # What Delta has counted with these commits.
        if sums.stem >= torn[0].stem:
            for file in (sums, sums.with_name(f".{sums.name}.crc")):
                file.unlink(missing_ok=True)


def recover_events(spark: SparkSession, spool: AnyPath, lake: Lake, settings: SparkSettings) -> int:
    """Build the checkpoint and renumber the commit log; returns how many segments of the spool are shipped."""
    shipped = _shipped_segments(spark, spool, lake)
    new = lake.ship_checkpoint.with_name("ship.new")
    if new.is_dir():
        remove_tree(new)
    _run_first_batch(spark, new, settings)
    write_log(new / "sources" / "0" / "0", shipped)
    last = last_batch(new / "commits")
    if last is None:
        raise LakeError(f"{new} has no batch: Spark did not build the checkpoint")
    # `ship` refuses to start until the new checkpoint has its name: that is the last step.
    if lake.ship_checkpoint.is_dir():
        remove_tree(lake.ship_checkpoint)
    if lake.sink == "parquet":
        renumber_log(lake.events, last)
    move_file(new, lake.ship_checkpoint.parent, lake.ship_checkpoint.name)
    return len(shipped)


def _shipped_segments(spark: SparkSession, spool: AnyPath, lake: Lake) -> list[dict[str, Any]]:
    """The segments of the spool that the lake has, as entries in the log of Spark's file source."""
    name = F.element_at(F.split("source_file", "/"), -1).alias("name")
    names = {row["name"] for row in lake.read(spark).select(name).distinct().collect()}
    files = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", SEGMENT_GLOB)
        .load(str(spool.resolve()))
        .select("_metadata.file_path", "_metadata.file_name", F.unix_millis("modificationTime").alias("timestamp"))
    )
    # A stream writes file:///…, where a batch has file:/…
    return [
        {"path": re.sub("^file:/+", "file:///", row["file_path"]), "timestamp": row["timestamp"], "batchId": 0}
        for row in files.collect()
        if row["file_name"] in names
    ]


def _run_first_batch(spark: SparkSession, checkpoint: AnyPath, settings: SparkSettings) -> None:
    """Let Spark begin a checkpoint with the query of `ship`, on one empty line and without its sink."""
    seed = checkpoint.with_name("ship.seed")
    spark.range(1).select(F.lit("").alias("value")).coalesce(1).write.mode("overwrite").text(str(seed))
    rows = events_of(read_segments(spark, seed, settings, "part-*"))
    query = (
        rows.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    remove_tree(seed)
