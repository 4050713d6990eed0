"""Marks segments that are in the lake with their seals, so that the server's retention may delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from klamm_spark.lake.anchors import Anchor
from klamm_spark.lake.layout import Lake
from klamm_spark.lake.seals import LakeSeals
from klamm_spark.lake.syncing import LakeSync
from klamm_spark.spool.layout import SHIPPED_SUFFIX, node_folders, parse_name
from klamm_spark.storage.filesystems import AnyPath


class ShippedMarks:
    """Adds the seals of shipped segments to the lake, and marks the segments of a spool in a local folder. For a URI,
    the job that copies the segments marks them."""

    def __init__(self, spool: AnyPath, lake: Lake, say: Callable[[str], None], anchor: Anchor | None = None) -> None:
        self._spool = spool.resolve() if isinstance(spool, Path) else None
        self._say = say
        self._seals = LakeSeals(spool, lake, say, anchor)
        self._sync = LakeSync(lake)
        self._failed = False

    def read_ahead(self, segment: AnyPath) -> None:
        """Read a segment whose batch has started, so that `add` takes less time."""
        self._seals.read_ahead(segment)

    def add(self, segments: Iterable[AnyPath]) -> None:
        """These segments have been committed. What cannot be marked is reported once. Raises LakeError.

        A segment that was deleted before it got its mark may have been deleted before it was read: Spark skips it.
        """
        shipped = sorted(segments)
        nodes = list(node_folders(self._spool)) if self._spool is not None and shipped else []
        gone = {path for path in shipped if not path.exists()}
        if shipped:
            self._sync.run()
        self._seals.add(path for path in shipped if path not in gone)
        for path in shipped:
            if path in gone:
                self._say(
                    f"{path} was deleted before it was shipped, or while it was: klamm audit verify shows which of its "
                    "events are missing"
                )
                continue
            try:
                self._mark(path, nodes)
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    self._say(f"{error}: retention cannot know that this and other segments were shipped")

    def _mark(self, path: AnyPath, nodes: Iterable[AnyPath]) -> None:
        name = parse_name(path.name)
        if name is None:
            return
        # Also where another copy of it was read.
        for folder in nodes:
            for copy in (folder / path.name, folder / path.parent.name / path.name):
                if isinstance(copy, Path) and copy.exists():
                    copy.with_name(name.stem + SHIPPED_SUFFIX).touch(mode=0o640)
