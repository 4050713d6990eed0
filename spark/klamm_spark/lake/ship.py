"""`klamm audit ship`: writes the sealed segments of the spool to the lake, each event once.

A segment is shipped when the ledger has its seal. Tasks write the files of a batch, on Spark's executors or on threads
of this process. Then the driver, which is this process, appends the files to the Delta table in one commit, which names
the segments. It adds the segments to the ledger, and marks them in the spool.

The driver may be killed at any point. Files that no commit names do not belong to the table. The next driver adds the
segments of the last commit to the ledger. If it cannot read such a segment, it tries again in each round, but never
appends the segment to the table again.

Segments have unique names, and times do not matter: if a server was away for days, its events are shipped like others.
A segment that differs from its seal is set aside and reported, and all others are shipped.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.anchors import open_anchor
from klamm_spark.lake.appends import CommitTooLargeError, Named, adopt, append, take
from klamm_spark.lake.keys import remember_keys
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seal_log import open_log
from klamm_spark.lake.seals import Ledger, Shipped
from klamm_spark.lake.segment import Segment
from klamm_spark.lake.ship_lock import only_writer
from klamm_spark.lake.shipped_marks import ShippedMarks
from klamm_spark.lake.tasks import Tasks
from klamm_spark.lake.written import Part, Written, write_part
from klamm_spark.settings.spark import Pipeline, SparkSettings
from klamm_spark.spool.backlog import SpoolBacklog, Waiting
from klamm_spark.spool.reader import require_spool, spool_of
from klamm_spark.stopping import Stopped, until_a_signal
from klamm_spark.storage.filesystems import AnyPath, path_of, sync_all

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

EXIT_SET_ASIDE: Final = 1
_LEAST_PAUSE_S: Final = 0.1
_MOST_SEGMENTS: Final = 4096
"""The maximum number of segments in a batch. The seals of so many have 3 MB in the commit."""
_MOST_SEAL_BYTES: Final = 8 * 1024**2
"""The maximum bytes of a batch's seals as JSON.

The commit has this JSON as a text within a text, where a character may take four times as much.
"""


def run(
    spark: SparkSession | None,
    pipeline: Pipeline,
    *,
    once: bool,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> int:
    """Ship until `stop` is set or, with `once`, until all segments that are sealed now are shipped.

    Return the exit code: 1 if segments were set aside, or if a witness refuses the log. Without `stop`, SIGINT and
    SIGTERM end it after the batch. Without a Spark session, the tasks are threads. Raises LakeError if the spool or the
    lake cannot be used, if another process ships to the lake, or if a batch fails.
    """
    spool, lake = path_of(spool_of(pipeline)), Lake.of(pipeline.settings)
    require_spool(spool)
    with until_a_signal() if stop is None else contextlib.nullcontext(stop.wait) as stopped, only_writer(lake):
        shipper = Shipper(Tasks(spark), spool, lake, pipeline.settings, say)
        try:
            _run(shipper, once=once, stopped=stopped, pause_s=pipeline.settings.trigger_interval_ms / 1000)
        finally:
            shipper.summary()
    refused = shipper.log is not None and shipper.log.refused
    return EXIT_SET_ASIDE if shipper.ledger.aside or refused else 0


def _run(shipper: Shipper, *, once: bool, stopped: Stopped, pause_s: float) -> None:
    shipper.look()
    while not stopped(0):
        segments = shipper.next_batch()
        if segments:
            shipper.ship(segments)
            continue
        shipper.end_boots()
        if once or stopped(max(pause_s, _LEAST_PAUSE_S)):
            return
        shipper.look()


class Shipper:
    """Ships batches, and counts events. The command's thread calls all methods."""

    def __init__(
        self, tasks: Tasks, spool: AnyPath, lake: Lake, settings: SparkSettings, say: Callable[[str], None]
    ) -> None:
        self._tasks = tasks
        self._lake = lake
        self._settings = settings
        self._say = say
        self.batches = self.events = self.bad_lines = self.newer_lines = self._busy_ms = 0
        remember_keys(spool, lake, say)
        anchor = open_anchor(settings.anchor) if settings.anchor else None
        self.ledger = Ledger(spool, lake, say, anchor)
        self.log = open_log(lake, settings, say, anchor)
        self.ledger.on_rows = None if self.log is None else self.log.append
        self._marks = ShippedMarks(spool, say)
        self._backlog = SpoolBacklog(spool, self.ledger.known)
        self._backlog.look()
        self._owed = adopt(lake, self.ledger, self._waiting(), say)
        # An earlier driver may have been killed before it marked them.
        self._marks.mark_all(self.ledger.known)
        self._queue: deque[Waiting] = deque()

    def _waiting(self) -> dict[str, AnyPath]:
        return {each.stem: each.path for each in self._backlog.waiting()}

    def look(self) -> None:
        """Find the segments that are sealed and not shipped."""
        self._backlog.look()
        if self._owed:
            waiting = self._waiting()
            left = take(self.ledger, self._owed, waiting)
            self._marks.mark(waiting[stem] for stem in (self._owed.keys() - left.keys()) & waiting.keys())
            self._owed = left
        self._queue = deque(each for each in self._backlog.waiting() if each.stem not in self._owed)

    def next_batch(self) -> list[Segment]:
        """Return the next batch of the segments that `look` found: at least one, or none at the end."""
        found: list[Segment] = []
        left_bytes, left = self._settings.max_bytes_per_trigger, self._settings.max_files_per_trigger
        most, seal_bytes = min(left or _MOST_SEGMENTS, _MOST_SEGMENTS), 0
        while self._queue and len(found) < most and seal_bytes < _MOST_SEAL_BYTES:
            left_bytes -= self._queue[0].size_bytes
            if found and not left and left_bytes < 0:
                break
            segment = self.ledger.admit(self._queue.popleft().path)
            if segment is not None:
                found.append(segment)
                seal_bytes += len(segment.seal.to_json())
        return found

    def ship(self, segments: Sequence[Segment]) -> None:
        """Append a batch to the table, then to the ledger, and mark its segments in the spool. Raises LakeError."""
        began = time.monotonic()
        written = self._write(segments)
        shipped = [
            Shipped(each, one.lines[each.seal.segment])
            for each in segments
            for one in written
            if each.seal.segment in one.lines
        ]
        for each in segments:
            for one in written:
                if each.seal.segment in one.failures:
                    self.ledger.refuse(each, one.failures[each.seal.segment])
        if not shipped:
            return
        sync_all(self._lake.root)
        seals = {each.segment.seal.segment: each.segment.seal.to_json().decode("ascii") for each in shipped}
        named = Named(seals | self._owed, self.ledger.newest())
        try:
            append(self._lake, (file for one in written for file in one.files), named)
        except CommitTooLargeError:
            # The events are of many hours, and each hour has a file.
            half = len(shipped) // 2
            if not half:
                raise
            for some in (shipped[:half], shipped[half:]):
                self.ship([each.segment for each in some])
            return
        sync_all(self._lake.root)
        self.ledger.add(shipped)
        self._marks.mark(path_of(each.segment.path) for each in shipped)
        self._count(written, int((time.monotonic() - began) * 1000))

    def _write(self, segments: Sequence[Segment]) -> list[Written]:
        """Write the files of a batch. Raises LakeError."""
        count = min(self._tasks.count, len(segments))
        shares: list[list[Segment]] = [[] for _ in range(count)]
        sizes = [0] * count
        for segment in sorted(segments, key=lambda segment: -segment.seal.size_bytes):
            least = sizes.index(min(sizes))
            shares[least].append(segment)
            sizes[least] += segment.seal.size_bytes
        parts = [Part(share, str(self._lake.events), time.time_ns() // 1000) for share in shares]
        try:
            return self._tasks.run(write_part, parts)
        except Exception as error:
            # Includes Spark's own errors, e.g. after the end of its JVM.
            raise LakeError(f"the batch failed: {_innermost(error)}") from error

    def end_boots(self) -> None:
        """Add the seals that servers have since marked as the last ones of their boots."""
        self.ledger.add(())

    def _count(self, written: Sequence[Written], duration_ms: int) -> None:
        events, bad_lines = sum(one.events for one in written), sum(one.bad_lines for one in written)
        line = f"batch {self.batches}: {events:,} events, {rate(events + bad_lines, duration_ms)}"
        if bad_lines:
            line += f", {bad_lines:,} bad lines to the quarantine"
        self.batches += 1
        self.events += events
        self.bad_lines += bad_lines
        self.newer_lines += sum(one.newer_lines for one in written)
        self._busy_ms += duration_ms
        self._say(f"{line}; {self._lag()}")

    def _lag(self) -> str:
        """Return a text about the sealed segments in the spool that are not shipped."""
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
        aside = len(self.ledger.aside.keys() - self._owed.keys())
        if aside:
            self._say(f"{aside:,} segments were set aside, and are not in the lake")
        if self._owed:
            self._say(f"{len(self._owed):,} segments are in the lake without their seals: they could not be read again")
        self._say(f"lake: {self._lake.root}")


def _innermost(error: BaseException) -> str:
    """Return the line of the actual error. Spark's own message ends with the traceback of a task."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (raised or lines or [type(error).__name__])[-1 if raised else 0]


def rate(rows: int, duration_ms: int) -> str:
    """Return a rate, e.g. `12,345 events/s`."""
    return f"{rows * 1000 / max(duration_ms, 1):,.0f} events/s"
