"""`klamm audit to-delta`: moves a Parquet lake to Delta; `ship` then goes on where it was, with `sink = "delta"`.

The rows are written to a table beside `events`, and two renames put it in place: the Parquet table stays as
`events-parquet` until someone deletes it. A move that is killed is started or ended by the next one. The
seals stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import MOVED, PARTITIONS, Lake, last_batch
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.settings.spark import Pipeline
from klamm_spark.storage.filesystems import move_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLD: Final = "events-parquet"


def run(spark: SparkSession, pipeline: Pipeline, *, say: Callable[[str], None]) -> int:
    """Move the lake; the exit code. Raises LakeError. `ship` must not run."""
    lake = Lake(Lake.of(pipeline.settings, spark).root, "parquet")
    with only_writer(lake):
        if not (lake.events.is_dir() or ((lake.root / _OLD).is_dir() and (lake.root / MOVED).is_dir())):
            lake.require_events()
        if lake.events.is_dir():
            lake.require_events()
            _require_an_end(lake)
            _write(spark, lake)
            move_file(lake.events, lake.root, _OLD)
        move_file(lake.root / MOVED, lake.root, lake.events.name)
    say(f'{lake.events} is Delta now: set sink = "delta", and klamm audit ship goes on')
    say(f"{lake.root / _OLD} is the lake as it was: delete it when klamm audit verify has found the new one whole")
    return 0


def _require_an_end(lake: Lake) -> None:
    """Raises LakeError if a batch was started, and may be written already: Delta would not know it."""
    lake.require_checkpoint()
    checkpoint = lake.ship_checkpoint
    if last_batch(checkpoint / "offsets") != last_batch(checkpoint / "commits"):
        raise LakeError(f"{lake.root}: the last batch was not ended: run klamm audit ship --once first")


def _write(spark: SparkSession, lake: Lake) -> None:
    rows, new = lake.read(spark), lake.root / MOVED
    rows.write.format("delta").mode("overwrite").partitionBy(*PARTITIONS).save(str(new))
    before, after = rows.count(), spark.read.format("delta").load(str(new)).count()
    if before != after:
        raise LakeError(f"{new} has {after:,} rows, {lake.events} has {before:,}: nothing was moved")
