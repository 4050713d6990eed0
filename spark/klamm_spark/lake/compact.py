"""`klamm audit compact`: makes small files large, and deletes what nothing needs, while readers and `ship` run on.

Delta merges files, and deletes what was replaced and what killed drivers have left. Small files of the ledger become
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import merge_seals
from klamm_spark.settings.spark import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONE_WRITER: Final = frozenset({"s3", "s3a", "s3n"})


def run(
    spark: SparkSession, pipeline: Pipeline, *, keep_hours: float, say: Callable[[str], None], alone: bool = False
) -> int:
    """Compact `events` and the seals; the exit code. `alone` says that `ship` does not run.

    Raises LakeError, and FileSystemError if the store fails.
    """
    lake = Lake.of(pipeline.settings, spark)
    lake.require_events()
    if not alone:
        require_one_writer(spark, lake)
    spark.sql(f"OPTIMIZE delta.`{lake.events}`")
    spark.sql(f"VACUUM delta.`{lake.events}` RETAIN {keep_hours:g} HOURS")
    say(f"{lake.events}: optimized; replaced files are kept for {keep_hours:g} hours")
    merge_seals(lake, say)
    return 0


def require_one_writer(spark: SparkSession, lake: Lake) -> None:
    """Raises LakeError if two drivers that commit to this Delta table may overwrite each other's commits."""
    scheme, at_uri, _ = str(lake.root).partition("://")
    if not at_uri or scheme not in _ONE_WRITER:
        return
    key = f"spark.delta.logStore.{scheme}.impl"
    if spark.conf.get(key, None) in (None, "io.delta.storage.S3SingleDriverLogStore"):
        raise LakeError(
            f"Delta's commits in {scheme}:// are safe from one driver only: stop klamm audit ship "
            f"and give --alone, or set {key} to a log store for several, e.g. io.delta.storage.S3DynamoDBLogStore"
        )
