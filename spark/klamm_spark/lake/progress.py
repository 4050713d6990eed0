"""The progress lines of `klamm audit ship`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm_spark.lake.anchors import Anchor
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.shipped_log import ShippedLog
from klamm_spark.lake.shipped_marks import ShippedMarks
from klamm_spark.spool.backlog import SpoolBacklog
from klamm_spark.storage.filesystems import AnyPath

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class Progress:
    """Follows the shipping query; `update` prints a line for each batch with input. For one thread.

    It is made before the query starts: what is committed from then on is new. `query` is set when it has started.
    """

    def __init__(self, spool: AnyPath, lake: Lake, say: Callable[[str], None], anchor: Anchor | None = None) -> None:
        self.batches = self.events = self.bad_lines = self.newer_lines = 0
        self.busy_ms = 0
        self._lake = lake
        self.query: StreamingQuery | None = None
        self._say = say
        self._next_batch = -1
        self._seen: StreamingQueryProgress | None = None
        self._log = ShippedLog(lake.ship_checkpoint, spool)
        self._backlog = SpoolBacklog(spool)
        self._in_work: list[AnyPath] = []
        earlier = self._log.new_files()
        self._backlog.take(earlier)
        self._marks = ShippedMarks(spool, lake, say, anchor)
        # A driver may have been killed before it marked them; retention may have deleted some.
        self._marks.add(path for path in earlier if path.exists())

    def update(self) -> None:
        """Count and print the batches that have ended since the last call."""
        query = self.query
        latest = query.lastProgress if query is not None else None
        if query is None or latest is None or latest == self._seen:
            return
        self._seen = latest
        shipped = self._log.new_files()
        self._backlog.take(shipped)
        for progress in query.recentProgress:
            if progress.batchId < self._next_batch or "addBatch" not in progress.durationMs:
                continue
            self._next_batch = progress.batchId + 1
            if progress.numInputRows:
                self._count(progress)
        self._marks.add(shipped)

    def read_ahead(self) -> bool:
        """Read one segment of the batch that Spark works on, for the next `update`; False if there is none left."""
        if not self._in_work:
            self._in_work = self._log.files_in_work()
        if self._in_work:
            self._marks.read_ahead(self._in_work.pop())
        return bool(self._in_work)

    def _count(self, progress: StreamingQueryProgress) -> None:
        observed = progress.observedMetrics["shipped"].asDict()
        duration_ms = progress.durationMs["triggerExecution"]
        events, bad_lines, rows = observed["events"], observed["bad_lines"], progress.numInputRows
        self.batches += 1
        self.events += events
        self.bad_lines += bad_lines
        self.newer_lines += observed["newer_lines"]
        self.busy_ms += duration_ms
        line = f"batch {progress.batchId}: {events:,} events, {rate(rows, duration_ms)}"
        if bad_lines:
            line += f", {bad_lines:,} bad lines to the quarantine"
        self._say(f"{line}; {self.lag()}")

    def lag(self) -> str:
        """How much is sealed in the spool and not shipped, in words."""
        self._backlog.look()
        return str(self._backlog)

    def summary(self) -> None:
        """Print the totals."""
        shipped = self._log.new_files()
        self._backlog.take(shipped)
        self._marks.add(shipped)
        self._say(
            f"shipped {self.events:,} events in {self.batches:,} batches, "
            f"{rate(self.events + self.bad_lines, self.busy_ms)}; {self.lag()}"
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
        self._say(f"lake: {self._lake.root} ({self._lake.sink})")


def rate(rows: int, duration_ms: int) -> str:
    """`12,345 events/s`."""
    return f"{rows * 1000 / max(duration_ms, 1):,.0f} events/s"
