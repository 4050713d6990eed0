"""`klamm audit detect --follow`: runs the detections over new events of a spool or a lake, and records findings.

The command's only thread calls everything here.
"""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.findings.detections import Detection, Finding, Rules
from klamm_spark.findings.log import FindingLog
from klamm_spark.lake.files import files_of
from klamm_spark.queries.event_views import DuckDbViews, Period
from klamm_spark.terminal.spool_lines import SpoolLines

if TYPE_CHECKING:
    from klamm_spark.findings.outputs import Deliveries
    from klamm_spark.lake.layout import Lake

_LINES_AT_ONCE: Final = 200_000
_HOUR_US: Final = 3_600_000_000


class Watch(ABC):
    """Follows events, records new findings, and calls `report` with each new finding."""

    problems: Sequence[str] = ()
    """A sentence for each file that could not be read."""

    def __init__(
        self,
        log: FindingLog,
        deliveries: Deliveries,
        report: Callable[[dict[str, Any]], None],
        *,
        window_us: int,
        wall_us: Callable[[], int],
        rules: Rules | None = None,
    ) -> None:
        self._rules = rules or Rules()
        self._log = log
        self._deliveries = deliveries
        self._report = report
        self._window_us = window_us
        self._wall_us = wall_us

    def _record(self, found: Iterable[tuple[Detection, Finding]], now_us: int) -> None:
        for finding in self._log.record(found, now_us):
            self._report(finding)

    @abstractmethod
    def step(self) -> object:
        """Read and detect once. Raises OSError, LakeError."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""


class SpoolWatch(Watch):
    """Follows a spool: reads new events, keeps those of a time window, and records new findings.

    Events leave the window only after the detections have run. So the detections see each event at least once with all
    others of its window. Memory holds the events of the window; DuckDB writes the rest to a temporary folder.
    """

    def __init__(
        self,
        spool: Path,
        log: FindingLog,
        deliveries: Deliveries,
        report: Callable[[dict[str, Any]], None],
        *,
        window_us: int,
        since_us: int = 0,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        rules: Rules | None = None,
    ) -> None:
        """Open the spool. Raises LakeError."""
        super().__init__(log, deliveries, report, window_us=window_us, wall_us=wall_us, rules=rules)
        self._reader = SpoolLines(spool, since_us=since_us)
        self._views = DuckDbViews(None, Period(before_us=since_us))
        self.problems = self._reader.problems
        """A sentence for each segment that could not be read."""

    def step(self) -> bool:
        """Read, detect, record and deliver once. Return True if there were new events. Raises OSError, LakeError."""
        is_new = self._load(self._reader.new_lines())
        if is_new:
            now_us = self._wall_us()
            self._record(self._rules.findings(self._views), now_us)
            self._views.forget(now_us - self._window_us)
        self._deliveries.run()
        return is_new

    def _load(self, lines: Iterator[bytes]) -> bool:
        found = False
        while batch := list(islice(lines, _LINES_AT_ONCE)):
            found = True
            _add(self._views, batch)
        return found

    def close(self) -> None:
        """Remove the events from memory and from the temporary folder."""
        self._views.close()
        self._reader.close()


class LakeWatch(Watch):
    """Follows a lake: runs the detections on the hours around each new file, and records new findings.

    After a start, files count as new if they came in the hour before the last record of an earlier process, or later.
    Their findings may already be in the log.
    """

    def __init__(
        self,
        lake: Lake,
        log: FindingLog,
        deliveries: Deliveries,
        report: Callable[[dict[str, Any]], None],
        *,
        window_us: int,
        since_us: int = 0,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        rules: Rules | None = None,
    ) -> None:
        """Open the lake. Raises LakeError."""
        super().__init__(log, deliveries, report, window_us=window_us, wall_us=wall_us, rules=rules)
        self._lake = lake
        self._since_us = since_us
        # The hour is a margin: a file's time is earlier than its commit. The log knows the findings that come again.
        self._known = {file.path for file in files_of(lake, before_us=log.seen_us - _HOUR_US)}

    def step(self) -> None:
        """Run the detections on new files, record and deliver once. Raises OSError, LakeError."""
        now_us, files = self._wall_us(), files_of(self._lake)
        hours = [file.hour_us for file in files if file.path not in self._known and file.hour_us is not None]
        if hours:
            period = Period.around(min(hours), max(hours) + _HOUR_US, self._window_us, self._since_us)
            with closing(DuckDbViews(self._lake, period)) as views:
                self._record(self._rules.findings(views), now_us)
        self._known = {file.path for file in files}
        self._deliveries.run()

    def close(self) -> None:
        """Do nothing, because nothing stays open between steps."""


def _add(views: DuckDbViews, lines: Iterable[bytes]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        views.add([file.name])


def follow(
    watch: Watch,
    poll_s: float,
    stopped: Callable[[float], bool],
    monotonic_s: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda problem: None,
) -> None:
    """Step until `stopped(seconds)` returns True; it waits for these seconds. `say` gets each problem.

    Each wait is at least as long as the step before. So detections over many events take half a core at most. Raises
    OSError, LakeError.
    """
    wait_s, said = 0.0, 0
    while not stopped(wait_s):
        began_s = monotonic_s()
        watch.step()
        new = watch.problems[said:]
        said += len(new)
        for problem in new:
            say(problem)
        wait_s = max(poll_s, monotonic_s() - began_s)
