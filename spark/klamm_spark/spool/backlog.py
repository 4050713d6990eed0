"""`SpoolBacklog`: finds the segments that are sealed and not shipped. `ship` uses it.

If a local folder has no such segment, `look` lists it again only after a change of the folder.
"""

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
"""A folder that has changed within this time may change again without a newer time of change."""
_MOST_SEALS: Final = 1000
"""If at most this many segments wait, the text about them has the number of their events. For this number, the seal of
each segment is read.
"""


class Waiting(NamedTuple):
    """A segment that is not shipped."""

    stem: str
    path: AnyPath
    size_bytes: int


class SpoolBacklog:
    """The segments of a spool that are not shipped: their names are not in `known`, which the caller extends.

    A copy of a segment elsewhere in the spool counts as the same segment. Only one thread may use it.
    """

    def __init__(self, spool: AnyPath, known: Set[str], clock: Clock | None = None) -> None:
        self._spool = spool.resolve()
        self._known = known
        self._clock = clock or SystemClock()
        self._waiting: dict[str, Waiting] = {}
        self._done_ns: dict[AnyPath, int] = {}
        """The time of the last change of each folder that has nothing to ship."""

    def waiting(self) -> list[Waiting]:
        """Return the segments that `look` has found and that are still not shipped, the oldest first."""
        return [self._waiting[stem] for stem in sorted(self._waiting.keys() - self._known)]

    def look(self) -> None:
        """List the folders that may have unshipped segments. At a URI, these are all folders."""
        before, self._waiting = self._waiting, {}
        done_ns, self._done_ns = self._done_ns, {}
        for folder in [each for node_folder in node_folders(self._spool) for each in folders_of(node_folder)]:
            # Retention may delete the folder meanwhile.
            with contextlib.suppress(FileNotFoundError):
                settled_ns = self._settled_ns(folder)
                is_done = settled_ns is not None and done_ns.get(folder) == settled_ns
                if (is_done or not self._find(folder, before)) and settled_ns is not None:
                    self._done_ns[folder] = settled_ns

    def _settled_ns(self, folder: AnyPath) -> int | None:
        """Return the time of a folder's last change; None if a later change could have the same time."""
        if not isinstance(folder, Path):
            return None
        changed_ns = folder.stat().st_mtime_ns
        return changed_ns if self._clock.wall_us() * 1000 - changed_ns > _SETTLED_NS else None

    def _find(self, folder: AnyPath, before: Mapping[str, Waiting]) -> bool:
        """Find the unshipped segments of a folder. Return True if there are any."""
        there = {path.name.partition(".")[0]: path for path in folder.iterdir() if is_sealed(path.name)}
        stems = there.keys() - self._known
        # The first of several copies counts.
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
            return "no segments left to ship"
        events = ""
        if len(waiting) <= _MOST_SEALS and isinstance(self._spool, Path):
            seals = (read_seal(each.path) for each in waiting)
            events = f"{sum(seal.events for seal in seals if seal is not None):,} events, "
        size_bytes = sum(each.size_bytes for each in waiting)
        return f"{len(waiting):,} segments ({events}{size_bytes / 1e6:,.1f} MB) left to ship"
