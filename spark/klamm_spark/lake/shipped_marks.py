"""`ShippedMarks`: marks segments of the spool whose seals are in the lake, so that the server's retention may delete
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from klamm_spark.spool.layout import SHIPPED_SUFFIX, beside, is_sealed, node_folders, segment_files
from klamm_spark.storage.filesystems import AnyPath


class ShippedMarks:
    """Marks the segments of a spool in a local folder. If the spool is at a URI, the job that copies the segments marks
    them.
    """

    def __init__(self, spool: AnyPath, say: Callable[[str], None]) -> None:
        self._spool = spool.resolve() if isinstance(spool, Path) else None
        self._say = say
        self._failed = False

    def mark_all(self, stems: Collection[str]) -> None:
        """Mark the segments of the spool with these names, unless they have a mark."""
        for folder in node_folders(self._spool) if self._spool is not None else ():
            there = {path.name: path for path in segment_files(folder)}
            sealed = (path for name, path in there.items() if is_sealed(name) and path.name.partition(".")[0] in stems)
            self._touch(path for path in sealed if beside(path, SHIPPED_SUFFIX).name not in there)

    def mark(self, segments: Iterable[AnyPath]) -> None:
        """Mark these segments, and copies of them in the folders of other nodes."""
        folders = list(node_folders(self._spool)) if self._spool is not None else []
        places = (
            place
            for path in segments
            for node in folders
            for place in (node / path.name, node / path.parent.name / path.name)
        )
        self._touch(place for place in places if place.exists())

    def _touch(self, segments: Iterable[AnyPath]) -> None:
        for path in segments:
            mark = beside(path, SHIPPED_SUFFIX)
            try:
                assert isinstance(mark, Path)
                mark.touch(mode=0o640)
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    self._say(f"{error}: retention cannot know that this and other segments were shipped")
