"""Objects that all logs of a data directory share: file calls, open files, clock, random numbers, files to delete."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from klamm.runtime import Clock
from klamm.wire.batch_limits import DEFAULT_LIMITS, BatchLimits
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.files import OpenFiles
from klamm_broker.log.flusher import Flushable
from klamm_broker.log.producer_state import ProducerLimit

log = logging.getLogger("klamm.broker.log")

SET_ASIDE_SUFFIX: Final = ".set-aside"


class DelayedDeletions:
    """Renamed files and directories that are deleted after `file.delete.delay.ms`.

    Logs and their manager add files on any thread; `LogManager.checkpoint` calls `run_due`.
    """

    __slots__ = ("_due", "_lock", "_remove")

    def __init__(self, remove: Callable[[Path], None]) -> None:
        self._remove = remove
        self._due: list[tuple[int, Path]] = []
        # Protects the list of files.
        self._lock = threading.Lock()

    def add(self, paths: Iterable[Path], due_ms: int) -> None:
        """Add files to be removed after the time `due_ms`."""
        with self._lock:
            self._due.extend((due_ms, path) for path in paths)

    def run_due(self, now_ms: int) -> None:
        """Remove the files that are due. A failure is logged, and the file is left for the next start."""
        with self._lock:
            due = [path for due_ms, path in self._due if due_ms <= now_ms]
            self._due = [entry for entry in self._due if entry[0] > now_ms]
        for path in due:
            self._remove(path)


class NewDirectories:
    """The new directories of partitions. One sync of their common parent makes many of them durable.

    Each directory gets a number. A caller that needs a durable directory passes its number to `sync`.
    """

    __slots__ = ("_data_dir", "_lock", "_made", "_operations", "_synced")

    def __init__(self, data_dir: Path, operations: FileOperations) -> None:
        self._data_dir = data_dir
        self._operations = operations
        self._made = 0
        self._synced = 0
        # Held during a sync, so that threads that wait for it need no sync of their own.
        self._lock = threading.Lock()

    def made(self) -> int:
        """Return the number of a directory that has just been created. The caller holds the manager's lock."""
        self._made += 1
        return self._made

    def sync(self, number: int) -> None:
        """Make the directories up to this number durable. Raises OSError."""
        if number <= self._synced:
            return
        with self._lock:
            if number > self._synced:
                made = self._made
                self._operations.sync_directory(self._data_dir)
                self._synced = made


def random_below(limit: int, random_bytes: Callable[[int], bytes] = os.urandom) -> int:
    """Return an integer from 0 to `limit` - 1."""
    return int.from_bytes(random_bytes(16), "big") % limit


class LogContext:
    """The objects that all logs of a data directory share. `LogManager` makes it; any thread may use it.

    `random_below(n)` returns an integer from 0 to n - 1. `start_offset_moved` is called when a client has moved a log's
    start, because the new start must survive a crash. `flush_later` is called with a log and an offset when the log has
    rolled a segment; records below the offset are to be synced. If `validates_records` is True, the records of produced
    batches are checked, not only the headers. `batch_limits` are the limits of produced batches. `producers` limits the
    number of producers that all logs remember.
    """

    __slots__ = (
        "clock",
        "deletions",
        "batch_limits",
        "flush_later",
        "new_directories",
        "open_files",
        "operations",
        "producers",
        "random_below",
        "start_offset_moved",
        "validates_records",
    )

    # 10 parameters: all parts that every log of a directory needs.
    def __init__(
        self,
        clock: Clock,
        operations: FileOperations | None = None,
        open_files: OpenFiles | None = None,
        random_below: Callable[[int], int] = random_below,
        start_offset_moved: Callable[[], None] = lambda: None,
        flush_later: Callable[[Flushable, int], None] = lambda _log, _offset: None,
        *,
        validates_records: bool = True,
        batch_limits: BatchLimits = DEFAULT_LIMITS,
        data_dir: Path = Path(),
        producers: ProducerLimit | None = None,
    ) -> None:
        self.clock = clock
        self.operations = operations or FileOperations()
        self.open_files = OpenFiles() if open_files is None else open_files
        self.deletions = DelayedDeletions(self.remove)
        self.new_directories = NewDirectories(data_dir, self.operations)
        self.random_below = random_below
        self.start_offset_moved = start_offset_moved
        self.flush_later = flush_later
        self.validates_records = validates_records
        self.batch_limits = batch_limits
        self.producers = producers or ProducerLimit()

    def remove(self, path: Path) -> None:
        """Remove a file or a directory, if it exists. A failure is logged."""
        try:
            self.operations.remove(path)
        except OSError as error:
            log.warning("%s cannot be removed: %s", path, error)

    def set_aside(self, path: Path) -> Path:
        """Add the suffix `.set-aside` to the name of a file or directory that must not be used. Raises OSError."""
        target = path.with_name(path.name + SET_ASIDE_SUFFIX)
        number = 0
        while target.exists():
            number += 1
            target = path.with_name(f"{path.name}{SET_ASIDE_SUFFIX}.{number}")
        self.operations.rename(path, target)
        return target
