"""Sealed segments of a spool that are not shipped, kept up to date without listing unchanged folders again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Final, NamedTuple

from klamm.runtime import Clock, SystemClock
from klamm_spark.spool.layout import folders_of, is_sealed, node_folders
from klamm_spark.spool.reader import read_seal
from klamm_spark.storage.filesystems import AnyPath

_SETTLED_NS: Final = 2_000_000_000
"""A folder that has changed within this time may change again without a later time of change."""
_MOST_SEALS: Final = 1000
"""Of so many waiting segments the seals are read, for the number of their events."""


class Waiting(NamedTuple):
    """A segment that waits."""

    stem: str
    path: AnyPath
    size_bytes: int


class SpoolBacklog:
    """`count` and `size_bytes` are of the segments that wait, as `look` found them. For one thread.

    A copy of a segment elsewhere in the spool is the same segment. Segments that have left the spool are forgotten.
    """

    def __init__(self, spool: AnyPath, clock: Clock | None = None) -> None:
        self._spool = spool.resolve()
        self._clock = clock or SystemClock()
        self._taken: set[str] = set()
        self._taken_since_look: set[str] = set()
        self._waiting: dict[str, Waiting] = {}
        self._names: dict[AnyPath, Set[str]] = {}
        """Of each folder, the segments that it had when it was listed."""
        self._copies = Counter[str]()
        """Of each segment, in how many folders it was."""
        self._listed: dict[AnyPath, int] = {}
        self._days: dict[AnyPath, list[AnyPath]] = {}
        self._events: dict[str, int] = {}
        self.size_bytes = 0

    @property
    def count(self) -> int:
        """Return the number of waiting segments."""
        return len(self._waiting)

    def take(self, stems: Iterable[str]) -> None:
        """These segments have been shipped."""
        for stem in stems:
            self._taken_since_look.add(stem)
            self._drop(stem)

    def _drop(self, stem: str) -> None:
        gone = self._waiting.pop(stem, None)
        if gone is not None:
            self.size_bytes -= gone.size_bytes
        self._events.pop(stem, None)

    def waiting(self) -> list[Waiting]:
        """The segments that wait, oldest first."""
        return [self._waiting[stem] for stem in sorted(self._waiting)]

    def look(self) -> None:
        """List the folders that have changed since the last call; at a URI, all."""
        self._taken |= self._taken_since_look
        for node_folder in node_folders(self._spool):
            if self._has_changed(node_folder):
                days = folders_of(node_folder)[1:]
                for day in set(self._days.get(node_folder, ())) - set(days):
                    self._has_names(day, frozenset())
                    self._listed.pop(day, None)
                self._days[node_folder] = days
                self._list(node_folder)
            for day in self._days[node_folder]:
                try:
                    if self._has_changed(day):
                        self._list(day)
                except FileNotFoundError:
                    # Retention has deleted it, and so changed the node's folder.
                    continue
        self._taken -= {stem for stem in self._taken_since_look if not self._copies[stem]}
        self._taken_since_look.clear()

    def _has_changed(self, folder: AnyPath) -> bool:
        if not isinstance(folder, Path):
            return True
        changed_ns = folder.stat().st_mtime_ns
        if self._listed.get(folder) == changed_ns:
            return False
        settled = self._clock.wall_us() * 1000 - changed_ns > _SETTLED_NS
        self._listed[folder] = changed_ns if settled else -1
        return True

    def _list(self, folder: AnyPath) -> None:
        there = {path.name.partition(".")[0]: path for path in folder.iterdir() if is_sealed(path.name)}
        self._has_names(folder, frozenset(there))
        for stem in there.keys() - self._taken - self._waiting.keys():
            try:
                size_bytes = there[stem].stat().st_size
            except FileNotFoundError:
                continue
            self._waiting[stem] = Waiting(stem, there[stem], size_bytes)
            self.size_bytes += size_bytes

    def _has_names(self, folder: AnyPath, names: Set[str]) -> None:
        before = self._names.pop(folder, frozenset[str]())
        for name in before - names:
            self._drop(name)
            self._copies[name] -= 1
            if not self._copies[name]:
                del self._copies[name]
                self._taken.discard(name)
        self._copies.update(names - before)
        if names:
            self._names[folder] = names

    def __str__(self) -> str:
        if not self._waiting:
            return "nothing behind the spool"
        events = ""
        if self.count <= _MOST_SEALS and isinstance(self._spool, Path):
            events = f"{sum(map(self._events_of, self._waiting)):,} events, "
        return f"{self.count:,} segments ({events}{self.size_bytes / 1e6:,.1f} MB) behind the spool"

    def _events_of(self, name: str) -> int:
        if name not in self._events:
            seal = read_seal(self._waiting[name].path)
            self._events[name] = seal.events if seal is not None else 0
        return self._events[name]
