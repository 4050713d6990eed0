"""`klamm audit compact`: makes small files large, and deletes what nothing needs, while readers and `ship` run on.

Delta merges and deletes files itself. Parquet is append-only: its small files stay, and only orphans are deleted, files
that killed drivers left. A file that is about to be committed looks like an orphan: none is deleted within
`MIN_KEEP_HOURS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import MIN_KEEP_HOURS, Lake, committed_files, orphan_files
from klamm_spark.lake.seals import merge_seals
from klamm_spark.settings.spark import Pipeline
from klamm_spark.storage.filesystems import AnyPath, HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_MIN_KEEP_HOURS: Final = 168
_ONE_DELTA_WRITER: Final = frozenset({"s3", "s3a", "s3n"})


def run(
    spark: SparkSession, pipeline: Pipeline, *, keep_hours: float, say: Callable[[str], None], alone: bool = False
) -> int:
    """Compact `events` and the seals; the exit code. `alone` says that `ship` does not run.

    Raises LakeError, and FileSystemError if the store fails.
    """
    if not keep_hours >= MIN_KEEP_HOURS:
        raise LakeError(f"--keep-hours must be at least {MIN_KEEP_HOURS}: younger files may be about to be committed")
    lake = Lake.of(pipeline.settings, spark)
    lake.require_events()
    if lake.sink == "delta":
        if not alone:
            require_one_writer(spark, lake)
        compact_delta(spark, lake.events, max(keep_hours, DELTA_MIN_KEEP_HOURS), say)
    else:
        deleted = delete_orphans(lake.events, older_than_s=keep_hours * 3600, now_s=time.time())
        say(f"{lake.events}: {deleted:,} orphans deleted; Parquet keeps its files: klamm audit to-delta makes them few")
    merge_seals(lake, say)
    return 0


def compact_delta(spark: SparkSession, table: AnyPath, kept_hours: float, say: Callable[[str], None]) -> None:
    """Merge small files of a Delta table, and delete what was replaced `kept_hours` ago."""
    spark.sql(f"OPTIMIZE delta.`{table}`")
    spark.sql(f"VACUUM delta.`{table}` RETAIN {kept_hours:g} HOURS")
    say(f"{table}: optimized; replaced files are kept for {kept_hours:g} hours")


def require_one_writer(spark: SparkSession, lake: Lake) -> None:
    """Raises LakeError if two drivers that commit to this Delta table may overwrite each other's commits."""
    if not isinstance(lake.root, HadoopPath) or lake.root.scheme not in _ONE_DELTA_WRITER:
        return
    key = f"spark.delta.logStore.{lake.root.scheme}.impl"
    if spark.conf.get(key, None) in (None, "io.delta.storage.S3SingleDriverLogStore"):
        raise LakeError(
            f"Delta's commits in {lake.root.scheme}:// are safe from one driver only: stop klamm audit ship "
            f"and give --alone, or set {key} to a log store for several, e.g. io.delta.storage.S3DynamoDBLogStore"
        )


def delete_orphans(table: AnyPath, *, older_than_s: float, now_s: float) -> int:
    """Delete files that the commit log does not name and that are older than `older_than_s`; returns how many."""
    old = [path for path in orphan_files(table) if now_s - path.stat().st_mtime > older_than_s]
    # Read again: files that were committed since the first listing must stay.
    committed = committed_files(table)
    deleted = [path for path in old if path not in committed]
    for path in deleted:
        if not isinstance(path, HadoopPath):
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return len(deleted)
