"""Find what is sealed in a spool and not shipped, without listing again folders that have nothing to ship."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final, NamedTuple

from klamm.runtime import Clock, SystemClock
from klamm_spark.spool.layout import folders_of, is_sealed, node_folders
from klamm_spark.spool.reader import read_seal
from klamm_spark.storage.filesystems import AnyPath

_SETTLED_NS: Final = 2_000_000_000
"""A folder that has changed within this time may change again without a later time of change."""
_MOST_SEALS: Final = 1000
"""If at most this many segments wait, their seals are read for the number of their events."""


class Waiting(NamedTuple):
    """A segment that waits."""

    stem: str
    path: AnyPath
    size_bytes: int


class SpoolBacklog:
    """The segments of a spool that wait: those whose names are not in `known`, which grows as they are shipped.

    A copy of a segment elsewhere in the spool is the same segment. For one thread.
    """

    def __init__(self, spool: AnyPath, known: Set[str], clock: Clock | None = None) -> None:
        self._spool = spool.resolve()
        self._known = known
        self._clock = clock or SystemClock()
        self._waiting: dict[str, Waiting] = {}
        self._done_ns: dict[AnyPath, int] = {}
        """The time of the last change of each folder that has nothing to ship."""

    def waiting(self) -> list[Waiting]:
        """Return the segments that wait, as `look` has found them, oldest first."""
        return [self._waiting[stem] for stem in sorted(self._waiting.keys() - self._known)]

    def look(self) -> None:
        """List the folders that may have segments that wait; at a URI, all."""
        before, self._waiting = self._waiting, {}
        done_ns, self._done_ns = self._done_ns, {}
        for folder in [each for node_folder in node_folders(self._spool) for each in folders_of(node_folder)]:
            # Retention may have deleted it.
            with contextlib.suppress(FileNotFoundError):
                settled_ns = self._settled_ns(folder)
                is_done = settled_ns is not None and done_ns.get(folder) == settled_ns
                if (is_done or not self._find(folder, before)) and settled_ns is not None:
                    self._done_ns[folder] = settled_ns

    def _settled_ns(self, folder: AnyPath) -> int | None:
        """Return when a folder was changed last; None if a change after it could have the same time."""
        if not isinstance(folder, Path):
            return None
        changed_ns = folder.stat().st_mtime_ns
        return changed_ns if self._clock.wall_us() * 1000 - changed_ns > _SETTLED_NS else None

    def _find(self, folder: AnyPath, before: Mapping[str, Waiting]) -> bool:
        """Find the segments of a folder that wait; return whether there are any."""
        there = {path.name.partition(".")[0]: path for path in folder.iterdir() if is_sealed(path.name)}
        stems = there.keys() - self._known
        # Of several copies the first counts.
        for stem in stems - self._waiting.keys():
            segment, path = before.get(stem), there[stem]
            with contextlib.suppress(FileNotFoundError):
                if segment is None or segment.path != path:
                    segment = Waiting(stem, path, path.stat().st_size)
                self._waiting[stem] = segment
        return bool(stems)

    def __str__(self) -> str:
        waiting = self.waiting()
        if not waiting:
            return "nothing behind the spool"
        events = ""
        if len(waiting) <= _MOST_SEALS and isinstance(self._spool, Path):
            seals = (read_seal(each.path) for each in waiting)
            events = f"{sum(seal.events for seal in seals if seal is not None):,} events, "
        size_bytes = sum(each.size_bytes for each in waiting)
        return f"{len(waiting):,} segments ({events}{size_bytes / 1e6:,.1f} MB) behind the spool"
