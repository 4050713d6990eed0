"""`klamm audit ship`: writes the sealed segments of the spool to the lake, each event once.

The seals in the lake are the ledger: a segment is shipped when its seal is there. A batch is one append to the Delta
table, whose commit names its segments, and then a file of the ledger. A driver may be killed at any point: files that
no commit names do not belong to the table, and the next driver takes what the last commit names into the ledger.

Names of segments are unique, and no time decides: the events of a server that was away for days are not late. A segment
that is not what its seal says is set aside and named, and all others are shipped.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from klamm.runtime import lower_priority
from klamm_spark.errors import LakeError
from klamm_spark.lake.anchors import open_anchor
from klamm_spark.lake.appends import adopt, adopt_older, said_in_commit
from klamm_spark.lake.keys import remember_keys
from klamm_spark.lake.layout import FORMAT, PARTITIONS, Lake
from klamm_spark.lake.seal_log import open_log
from klamm_spark.lake.seals import Ledger, Sealed
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.lake.shipped_marks import ShippedMarks
from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spark.schema import parse_lines, with_time
from klamm_spark.spark.session import files_looked_at_by_driver, jvm_may_have_ended
from klamm_spark.spool.backlog import SpoolBacklog, Waiting
from klamm_spark.spool.reader import require_spool, spool_of
from klamm_spark.storage.filesystems import AnyPath, path_of, sync_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

EXIT_SET_ASIDE: Final = 1
_JOBS: Final = "klamm audit ship"
_POLL_S: Final = 0.5
_LEAST_PAUSE_S: Final = 0.1
_CAUSE: Final = re.compile(r"(Caused by: )?[\w.$]+(Error|Exception): ")


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> int:
    """Ship until `stop` is set or, with `once`, until all segments that are sealed now are shipped.

    Returns the exit code: 1 if segments were set aside, or a witness refuses the log. Without `stop`, SIGINT and
    SIGTERM end it. Raises LakeError if the spool or the lake cannot be used, if another process ships to the lake, or
    if a batch fails.
    """
    spool, lake = path_of(spool_of(pipeline), spark), Lake.of(pipeline.settings, spark)
    require_spool(spool)
    local = isinstance(spool, Path) and isinstance(lake.root, Path)
    if stop is None:
        stop = threading.Event()
        _stop_on_signals(stop)
    with (
        only_writer(lake),
        files_looked_at_by_driver(spark, pipeline.settings) if local else nullcontext(),
        # It takes what Spark's tasks on this machine leave, e.g. while the last task of a batch runs.
        ThreadPoolExecutor(1, "read-ahead", lower_priority) as reader,
    ):
        shipper = Shipper(spark, spool, lake, pipeline.settings, say, stop)
        try:
            _run(shipper, reader, once=once, stop=stop, pause_s=pipeline.settings.trigger_interval_ms / 1000)
        except (ConnectionError, Py4JNetworkError) as error:
            if not stop.is_set():
                raise LakeError("Spark's JVM has ended; ship again, and it continues where it was") from error
        finally:
            shipper.summary()
    refused = shipper.log is not None and shipper.log.refused
    return EXIT_SET_ASIDE if shipper.ledger.aside or refused else 0


def _run(shipper: Shipper, reader: ThreadPoolExecutor, *, once: bool, stop: threading.Event, pause_s: float) -> None:
    shipper.look()
    ahead: Future[list[Sealed]] = reader.submit(shipper.next_batch)
    while not stop.is_set():
        segments = ahead.result()
        if segments:
            # The next ones are read while Spark works on these.
            ahead = reader.submit(shipper.next_batch)
            shipper.ship(segments)
            continue
        shipper.end_boots()
        if once or stop.wait(max(pause_s, _LEAST_PAUSE_S)):
            return
        shipper.look()
        ahead = reader.submit(shipper.next_batch)


class Shipper:
    """Ships batches, and counts them. `next_batch` may run in another thread than all else."""

    def __init__(
        self,
        spark: SparkSession,
        spool: AnyPath,
        lake: Lake,
        settings: SparkSettings,
        say: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._settings = settings
        self._say = say
        self._stop = stop
        self.batches = self.events = self.bad_lines = self.newer_lines = self._busy_ms = 0
        remember_keys(spool, lake, say)
        anchor = open_anchor(settings.anchor) if settings.anchor else None
        self.ledger = Ledger(spool, lake, say, anchor)
        self.log = open_log(lake, settings, say, anchor)
        self.ledger.on_rows = None if self.log is None else self.log.append
        self._marks = ShippedMarks(spool, say)
        self._backlog = SpoolBacklog(spool, self.ledger.known)
        self._backlog.look()
        waiting = {each.stem: each.path for each in self._backlog.waiting()}
        adopt(spark, lake, self.ledger, waiting, say)
        adopt_older(spark, lake, self.ledger, waiting, say)
        # A driver may have been killed before it marked them.
        self._marks.mark_all(self.ledger.known)
        self._queue: deque[Waiting] = deque()

    def look(self) -> None:
        """Find what is sealed now and not shipped."""
        self._backlog.look()
        self._queue = deque(self._backlog.waiting())

    def next_batch(self) -> list[Sealed]:
        """Read the next segments that `look` has found, as many as a batch may have, one at least; none at the end."""
        found: list[Sealed] = []
        left_bytes, left = self._settings.max_bytes_per_trigger, self._settings.max_files_per_trigger
        while self._queue and not self._stop.is_set():
            left_bytes -= self._queue[0].size_bytes
            if found and (len(found) >= left if left else left_bytes < 0):
                break
            sealed = self.ledger.read(self._queue.popleft().path)
            if sealed is not None:
                found.append(sealed)
        return found

    def ship(self, segments: Sequence[Sealed]) -> None:
        """Append a batch to the table, then to the ledger, and mark its segments in the spool. Raises LakeError."""
        began = time.monotonic()
        counted = self._append(segments)
        if counted is None:
            return
        sync_all(self._lake.root)
        self.ledger.add(segments)
        self._marks.mark(each.path for each in segments)
        self._count(counted, int((time.monotonic() - began) * 1000))

    def _append(self, segments: Sequence[Sealed]) -> dict[str, int] | None:
        """Returns the numbers of lines; None if `stop` was set meanwhile."""
        observed = Observation("shipped")
        rows = events_of(read_segments(self._spark, [each.path for each in segments]))
        bad, newer = F.count("bad_line"), F.count("newer_line")
        counts = (F.count(F.lit(1)) - bad).alias("events"), bad.alias("bad_lines"), newer.alias("newer_lines")
        with ThreadPoolExecutor(1, "append") as worker:
            done = worker.submit(self._write, rows.observe(observed, *counts), said_in_commit(segments))
            while not wait([done], _POLL_S).done:
                if self._stop.is_set():
                    with jvm_may_have_ended(lambda line: None):
                        # Spark would log an error for each task that is interrupted.
                        self._spark.sparkContext.setLogLevel("OFF")
                        self._spark.sparkContext.cancelJobGroup(_JOBS)
            try:
                done.result()
            except (Py4JJavaError, PySparkException) as error:
                if self._stop.is_set():
                    return None
                raise LakeError(explain("the batch", error)) from error
        return dict(observed.get)

    def _write(self, rows: DataFrame, said: str) -> None:
        # Of this thread alone: the session may have other jobs, e.g. a notebook's.
        self._spark.sparkContext.setJobGroup(_JOBS, _JOBS)
        writer = rows.write.format(FORMAT).mode("append").partitionBy(*PARTITIONS)
        writer.option("mergeSchema", "true").option("userMetadata", said).save(str(self._lake.events))

    def end_boots(self) -> None:
        """Add the seals that servers have marked as the last ones of their boots since."""
        self.ledger.add(())

    def _count(self, counted: dict[str, int], duration_ms: int) -> None:
        events, bad_lines = counted["events"], counted["bad_lines"]
        line = f"batch {self.batches}: {events:,} events, {rate(events + bad_lines, duration_ms)}"
        if bad_lines:
            line += f", {bad_lines:,} bad lines to the quarantine"
        self.batches += 1
        self.events += events
        self.bad_lines += bad_lines
        self.newer_lines += counted["newer_lines"]
        self._busy_ms += duration_ms
        self._say(f"{line}; {self._lag()}")

    def _lag(self) -> str:
        """Return the amount of sealed and unshipped data in the spool, in words."""
        self._backlog.look()
        return str(self._backlog)

    def summary(self) -> None:
        """Print the totals."""
        self._say(
            f"shipped {self.events:,} events in {self.batches:,} batches, "
            f"{rate(self.events + self.bad_lines, self._busy_ms)}; {self._lag()}"
        )
        if self.bad_lines:
            self._say(
                f"{self.bad_lines:,} lines are not events: klamm audit report counts them, and they are in "
                f"{self._lake.events} under date=__HIVE_DEFAULT_PARTITION__"
            )
        if self.newer_lines:
            self._say(
                f"{self.newer_lines:,} events are of a later klamm than this one: the lake has the fields that this "
                "one knows, and each line whole in newer_line"
            )
        if self.ledger.aside:
            self._say(f"{len(self.ledger.aside):,} segments were set aside, and are not in the lake")
        self._say(f"lake: {self._lake.root}")


def read_segments(spark: SparkSession, paths: Iterable[AnyPath]) -> DataFrame:
    """The lines of segments: `value`, `source_file`, `shipped_time`."""
    return (
        spark.read.format("text")
        .load([str(path) for path in paths])
        .select(
            "value",
            # `_metadata.file_path` would copy each row once more.
            F.input_file_name().alias("source_file"),
            F.current_timestamp().alias("shipped_time"),
        )
    )


def events_of(lines: DataFrame) -> DataFrame:
    """Parse lines into rows of the lake: events, and bad lines."""
    return with_time(parse_lines(lines))


def explain(what: str, failure: Exception) -> str:
    """Return the reason why a query failed, in one line: Spark's first line or the innermost exception in it, and its
    cause.
    """
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    said = (causes or lines or ["no message"])[-1 if causes else 0]
    innermost: Any = failure
    while getattr(innermost, "_cause", None) is not None:
        innermost = innermost._cause
    cause = str(getattr(innermost, "_desc", "")).strip().partition("\n")[0]
    return f"{what} failed: {said}" + (f": {cause}" if cause and cause not in str(failure) else "")


def rate(rows: int, duration_ms: int) -> str:
    """`12,345 events/s`."""
    return f"{rows * 1000 / max(duration_ms, 1):,.0f} events/s"


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(number: int, frame: Any) -> None:
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)
