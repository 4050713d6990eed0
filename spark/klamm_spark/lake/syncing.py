"""What was committed to the lake, on the disk: Spark closes its files and syncs none.

A segment that is marked as shipped may be deleted from the spool: a power cut must not take its rows then. An object
store has them when the commit is there, so this is for a lake in a folder.
"""

from __future__ import annotations

import os
import time
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.errors import LakeError
from klamm_spark.lake.layout import COMMIT_LOG, last_batch
from klamm_spark.lake.synced import added_files, remember_synced
from klamm_spark.lake.torn import DELTA_COMMIT
from klamm_spark.storage.files import SpoolFiles
from klamm_spark.storage.filesystems import path_from_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from klamm_spark.lake.layout import Lake

_RECENT_MS: Final = 3_600_000
"""The system has written what is older."""


class _Log:
    """The files of a log in a folder, by their numbers; a number's file has one of the `forms`."""

    def __init__(self, is_recent: Callable[[float], bool], folder: Path, *forms: str) -> None:
        self._is_recent = is_recent
        self._folder = folder
        self._forms = forms
        self._next: int | None = None

    def new_files(self) -> list[Path]:
        """Those that came since the last call; at the first, those of the last hour."""
        found: list[Path] = []
        if self._next is None:
            last = last_batch(self._folder)
            self._next = 0 if last is None else last + 1
            for number in range(self._next - 1, -1, -1):
                path = self._file(number)
                if path is None or not self._is_recent(path.stat().st_mtime * 1000):
                    break
                found.insert(0, path)
        for number in count(self._next):
            path = self._file(number)
            if path is None:
                break
            found.append(path)
            self._next = number + 1
        return found

    def _file(self, number: int) -> Path | None:
        paths = (self._folder / form.format(number) for form in self._forms)
        return next((path for path in paths if path.exists()), None)


class LakeSync:
    """Syncs what was committed to `events` since the last call of `run`, with the checkpoint; at first, what was
    committed within the last hour. For one thread."""

    def __init__(self, lake: Lake, files: SpoolFiles | None = None, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._lake = lake
        self._files = files or SpoolFiles()
        self._waiting: list[Path] = []
        self._commits: _Log | None = None
        self._checkpoint: list[_Log] = []
        if isinstance(lake.root, Path):
            events, checkpoint = lake.root / "events", lake.root / "checkpoints" / "ship"
            numbered = "{}", "{}.compact"
            if lake.sink == "delta":
                self._commits = _Log(self._is_recent, events / "_delta_log", DELTA_COMMIT)
            else:
                self._commits = _Log(self._is_recent, events / COMMIT_LOG, *numbered)
            self._checkpoint = [
                _Log(self._is_recent, checkpoint / name, *numbered) for name in ("offsets", "commits", "sources/0")
            ]

    def run(self) -> None:
        """Wait for the disk. Raises LakeError."""
        if self._commits is None:
            return
        try:
            commits = self._commits.new_files()
            entries = [entry for commit in commits for entry in added_files(commit, self._lake.sink)]
            self._waiting += [*self._data_files(entries), *commits]
            self._waiting += chain(*(log.new_files() for log in self._checkpoint))
            self._sync(self._waiting)
            self._waiting = []
            if commits:
                remember_synced(self._lake, int(commits[-1].stem), entries)
        except OSError as error:
            raise LakeError(
                f"{error.filename or self._lake.root}: {error.strerror or error}: what was shipped cannot be synced, "
                "and its segments are not marked"
            ) from error

    def _data_files(self, entries: Iterable[dict[str, Any]]) -> Iterator[Any]:
        events: Any = self._lake.events
        for entry in entries:
            if self._is_recent(entry["modificationTime"]):
                yield path_from_uri(entry["path"], events)

    def _sync(self, paths: list[Path]) -> None:
        root: Any = self._lake.root
        folders = {root}
        for path in paths:
            # Hadoop compares a file with the checksum beside it, if there is one.
            for file in (path, path.with_name(f".{path.name}.crc")):
                self._sync_file(file)
            folders.update(folder for folder in path.parents if folder.is_relative_to(root))
        for folder in sorted(folders, reverse=True):
            self._files.sync_directory(folder)

    def _sync_file(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            # It has no checksum, or Spark has replaced it.
            return
        try:
            self._files.fsync(descriptor)
        finally:
            self._files.close(descriptor)

    def _is_recent(self, time_ms: float) -> bool:
        return time_ms > self._now_s() * 1000 - _RECENT_MS
