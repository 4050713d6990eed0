"""The events of a spool as they come: sealed segments, and those that are being written."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from klamm_spark.spool.compression import decompress, is_compressed
from klamm_spark.spool.layout import OPEN_SUFFIX, node_folders, sealed_segments
from klamm_spark.spool.offsets import SpoolFollower
from klamm_spark.spool.reader import read_seal


class SpoolLines:
    """Yields each whole line of all nodes and streams once, however often `new_lines` is called.

    A segment that is being written is read on from where the last call ended, also after it is sealed and compressed.
    Lines of one stream are in order; streams are not merged.
    """

    def __init__(
        self,
        spool: Path,
        *,
        since_us: int = 0,
        newest: int | None = None,
        on_problem: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """Sealed segments that are older than `since_us` are not read, nor those before a stream's `newest` events.

        `on_problem` gets each of the `problems` when it comes.
        """
        self._spool = spool
        self._follower = SpoolFollower(spool, live=True)
        self._since_us = since_us
        self._newest = newest
        self._finished: dict[str, set[str]] = {}
        self._read_bytes: dict[tuple[str, str], int] = {}
        self._on_problem = on_problem
        self.problems: list[str] = []
        """Segments that could not be read, one sentence each."""

    def new_lines(self) -> Iterator[bytes]:
        """The lines that are new since the last call. Raises OSError if the spool itself cannot be read."""
        for folder in node_folders(self._spool):
            node = folder.name
            if node not in self._finished:
                self._finished[node] = set(self._left_out(self._spool / node))
            finished = self._finished[node]
            for segment, path in self._follower.segments(node):
                if segment not in finished:
                    if path.suffix != OPEN_SUFFIX:
                        finished.add(segment)
                    yield from self._lines((node, segment), path)

    def _left_out(self, folder: Path) -> Iterator[str]:
        """The sealed segments before the newest events."""
        if self._newest is None:
            return
        events = 0
        for path in reversed(sealed_segments(folder)):
            if events >= self._newest:
                yield path.name.partition(".")[0]
            seal = read_seal(path)
            events += seal.events if seal is not None else 0

    def _lines(self, segment: tuple[str, str], path: Path) -> Iterator[bytes]:
        is_sealed = path.suffix != OPEN_SUFFIX
        at = self._read_bytes.pop(segment, 0)
        if is_sealed and not at and self._is_older(path):
            return
        try:
            with _open(path) as file:
                file.seek(at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    at += len(line)
                    yield line[:-1]
        except FileNotFoundError:
            # It was sealed by now, and the next call reads it; or retention has deleted it.
            pass
        except (OSError, ValueError) as error:
            if not is_sealed:
                raise
            self.problems.append(f"{path} cannot be read: {error}")
            self._on_problem(self.problems[-1])
        if not is_sealed:
            self._read_bytes[segment] = at

    def _is_older(self, path: Path) -> bool:
        """Whether all events of a sealed segment are older than what is wanted."""
        seal = read_seal(path) if self._since_us else None
        return seal is not None and seal.sealed_time_us < self._since_us


def _open(path: Path) -> IO[bytes]:
    """The lines of a segment. Raises OSError, ValueError."""
    return io.BytesIO(decompress(path.read_bytes(), path.suffix)) if is_compressed(path.suffix) else path.open("rb")
