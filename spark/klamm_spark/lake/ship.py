"""`klamm audit ship`: writes the sealed segments of the spool to the lake, each event once.

Spark's own file source reads the segments, and one query writes events and quarantine to one sink: the checkpoint and
the sink's commit log together say what has been shipped. A driver may be killed at any point: it leaves files that no
commit log names, and the next one writes that batch again.

The names of segments are what makes each event come once: the file source remembers them all, and no query keeps
events or times in mind. So the events of a server that was away for days are not late, and none is dropped.
"""

from __future__ import annotations

import re
import signal
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from klamm.runtime import lower_priority
from klamm_spark.errors import LakeError
from klamm_spark.lake.anchors import open_anchor
from klamm_spark.lake.keys import remember_keys
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.progress import Progress
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.lake.synced import begin_to_remember, require_whole_rows
from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spark.schema import parse_lines, with_time
from klamm_spark.spark.session import files_looked_at_by_driver, jvm_may_have_ended
from klamm_spark.spool.reader import SEGMENT_GLOB, require_spool, spool_of
from klamm_spark.storage.filesystems import AnyPath, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OBSERVED: Final = "shipped"
_NO_AGE_LIMIT: Final = "36500d"
"""Spark ignores files that are older than the newest one by `maxFileAge`: one wrong clock would hide segments."""
_POLL_S: Final = 0.5
_POLL_ONCE_S: Final = 0.1
_CAUSE: Final = re.compile(r"(Caused by: )?[\w.$]+(Error|Exception): ")


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> int:
    """Ship until `stop` is set or, with `once`, until all segments that are sealed now are shipped; the exit code.

    Without `stop`, SIGINT and SIGTERM end it. Raises LakeError if the spool or the lake cannot be used, if another
    process ships to the lake, or if a query fails.
    """
    spool, lake = path_of(spool_of(pipeline), spark), Lake.of(pipeline.settings, spark)
    require_spool(spool)
    local = isinstance(spool, Path) and isinstance(lake.root, Path)
    with (
        only_writer(lake),
        files_looked_at_by_driver(spark, pipeline.settings) if local else nullcontext(),
        # It takes what Spark's tasks on this machine leave, e.g. while the last task of a batch runs.
        ThreadPoolExecutor(1, "read-ahead", lower_priority) as reader,
    ):
        return _run(spark, spool, lake, pipeline.settings, reader, once=once, say=say, stop=stop)


def _run(
    spark: SparkSession,
    spool: AnyPath,
    lake: Lake,
    settings: SparkSettings,
    reader: Executor,
    *,
    once: bool,
    say: Callable[[str], None],
    stop: threading.Event | None,
) -> int:
    # A lake that cannot be read must fail here, not in a query.
    lake.require_sink()
    lake.require_checkpoint()
    require_whole_rows(lake)
    begin_to_remember(lake)
    remember_keys(spool, lake, say)
    if stop is None:
        stop = threading.Event()
        _stop_on_signals(stop)
    progress = Progress(spool, lake, say, open_anchor(settings.anchor) if settings.anchor else None)
    query = progress.query = start(spark, spool, lake, settings, once=once)
    try:
        _watch(query, progress, stop, reader if once else None)
    except (ConnectionError, Py4JNetworkError) as error:
        if not stop.is_set():
            raise LakeError("Spark's JVM has ended; ship again, and it continues where it was") from error
    finally:
        with jvm_may_have_ended(say):
            if stop.is_set():
                # Spark would log an error for each task that is interrupted.
                spark.sparkContext.setLogLevel("OFF")
            # Only this one: the session may have other queries, e.g. a notebook's.
            query.stop()
            progress.update()
        progress.summary()
    return 0


def start(spark: SparkSession, spool: AnyPath, lake: Lake, settings: SparkSettings, *, once: bool) -> StreamingQuery:
    """Start the query that fills `lake.events`."""
    writer = write_events(events_of(read_segments(spark, spool, settings)), lake)
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{settings.trigger_interval_ms} milliseconds")
    return writer.start(str(lake.events))


def read_segments(
    spark: SparkSession, spool: AnyPath, settings: SparkSettings, pattern: str = SEGMENT_GLOB
) -> DataFrame:
    """A stream of the lines of sealed segments: `value`, `source_file`, `shipped_time`."""
    return (
        spark.readStream.format("text")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", pattern)
        .option(*_batch_limit(settings))
        .option("maxFileAge", _NO_AGE_LIMIT)
        # A segment's name is unique: a copy of it elsewhere in the spool, e.g. from a backup, adds nothing.
        .option("fileNameOnly", "true")
        # A segment that was deleted after it was listed would end the query, again at every start: see ShippedMarks.
        .option("ignoreMissingFiles", "true")
        .load(str(spool.resolve()))
        .select(
            "value",
            # `_metadata.file_path` would copy each row once more.
            F.input_file_name().alias("source_file"),
            F.current_timestamp().alias("shipped_time"),
        )
    )


def _batch_limit(settings: SparkSettings) -> tuple[str, str]:
    """Spark takes one of the two."""
    if settings.max_files_per_trigger:
        return "maxFilesPerTrigger", str(settings.max_files_per_trigger)
    return "maxBytesPerTrigger", str(settings.max_bytes_per_trigger)


def events_of(lines: DataFrame) -> DataFrame:
    """Parse lines into rows of the lake: events, and bad lines."""
    rows = with_time(parse_lines(lines))
    bad, newer = F.count("bad_line"), F.count("newer_line")
    return rows.observe(
        OBSERVED, (F.count(F.lit(1)) - bad).alias("events"), bad.alias("bad_lines"), newer.alias("newer_lines")
    )


def write_events(rows: DataFrame, lake: Lake) -> DataStreamWriter:
    """The sink; not started, and without a trigger."""
    return (
        rows.writeStream.queryName("ship")
        .format(lake.sink)
        .outputMode("append")
        .partitionBy("date", "hour")
        .option("checkpointLocation", str(lake.ship_checkpoint))
        .option("mergeSchema", "true")
    )


def _watch(query: StreamingQuery, progress: Progress, stop: threading.Event, reader: Executor | None = None) -> None:
    """Wait until the query has ended, it fails, or `stop` is set. Raises LakeError.

    `reader` reads ahead while Spark works: what is shipped once ends with its last batch, and its seals would come
    after it.
    """
    poll_s = _POLL_ONCE_S if reader else _POLL_S
    while not stop.wait(0 if reader and reader.submit(progress.read_ahead).result() else poll_s):
        progress.update()
        failure = query.exception()
        if failure is not None and not stop.is_set():
            raise LakeError(explain(query.name, failure))
        if not query.isActive:
            progress.update()
            return


def explain(name: str | None, failure: StreamingQueryException) -> str:
    """Why a query failed, in one line: Spark's first line or the innermost exception in it, and its cause."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    said = (causes or lines or ["no message"])[-1 if causes else 0]
    innermost: Any = failure
    while getattr(innermost, "_cause", None) is not None:
        innermost = innermost._cause
    cause = str(getattr(innermost, "_desc", "")).strip().partition("\n")[0]
    return f"the query {name} failed: {said}" + (f": {cause}" if cause and cause not in str(failure) else "")


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(number: int, frame: Any) -> None:
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)
