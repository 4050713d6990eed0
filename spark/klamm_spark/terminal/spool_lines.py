"""`SpoolLines`: reads the events of a spool while the server writes them, for `tail`, `sql`, `export` and `watch`."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from klamm_spark.spool.compression import decompress
from klamm_spark.spool.layout import OPEN_SUFFIX, node_folders, sealed_segments
from klamm_spark.spool.reader import read_seal, segments_of
from klamm_spark.storage.filesystems import UnfitFileError, open_local, read_file


@dataclass(slots=True)
class _Place:
    """The place up to which a segment was read, in uncompressed bytes.

    `descriptor` is the segment's file, opened while it was being written. It can still be read to the end after the
    segment is sealed, or even deleted. `damaged` holds the time and size of a file that cannot be decompressed.
    """

    at: int = 0
    descriptor: int | None = None
    damaged: tuple[int, int] | None = None

    def open(self, path: Path | None) -> BinaryIO:
        """Open the lines of the segment, from its beginning. Raises OSError or ValueError."""
        if self.descriptor is None:
            assert path is not None
            if path.suffix != OPEN_SUFFIX:
                return io.BytesIO(decompress(read_file(path), path.suffix))
            self.descriptor = open_local(path)
        return os.fdopen(os.dup(self.descriptor), "rb")

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class SpoolLines:
    """Yields each whole line of all nodes and streams once, over all calls of `new_lines`. The caller must `close` it.

    If a segment is still being written, the next call continues where the last one ended. It does so even if the
    segment is sealed and compressed meanwhile, or deleted. The next call also retries a sealed segment that could not
    be read, and a damaged one once its file has changed. Lines of one stream are in order, but streams are not merged.
    Only one thread at a time may use it.
    """

    def __init__(
        self,
        spool: Path,
        *,
        since_us: int = 0,
        newest: int | None = None,
        on_problem: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """Skip sealed segments that are older than `since_us`, and those before the last `newest` events of a stream.

        `on_problem` is called with each new problem.
        """
        self._spool = spool
        self._since_us = since_us
        self._newest = newest
        self._finished: dict[str, set[str]] = {}
        self._places: dict[str, dict[str, _Place]] = {}
        """The places by node and segment, for segments not yet read to the end."""
        self._on_problem = on_problem
        self.problems: list[str] = []
        """Segments that could not be read, one sentence each."""

    def close(self) -> None:
        """Close the files of segments that are being written."""
        for places in self._places.values():
            for place in places.values():
                place.close()
        self._places.clear()

    def new_lines(self) -> Iterator[bytes]:
        """Yield the lines that are new since the last call.

        Raises OSError if the spool or an open segment cannot be read.
        """
        for folder in node_folders(self._spool):
            node = folder.name
            if node not in self._finished:
                self._finished[node] = set(self._left_out(self._spool / node))
            finished, places = self._finished[node], self._places.setdefault(node, {})
            there = segments_of(self._spool / node)
            for segment in sorted((there.keys() | places.keys()) - finished):
                place = places.setdefault(segment, _Place())
                if (yield from self._lines(place, there.get(segment))):
                    place.close()
                    del places[segment]
                    finished.add(segment)

    def _left_out(self, folder: Path) -> Iterator[str]:
        """Yield the sealed segments before the newest events."""
        if self._newest is None:
            return
        events = 0
        for path in reversed(sealed_segments(folder)):
            if events >= self._newest:
                yield path.name.partition(".")[0]
            seal = read_seal(path)
            events += seal.events if seal is not None else 0

    def _lines(self, place: _Place, path: Path | None) -> Generator[bytes, None, bool]:
        """Yield the unread lines of a segment; return True if no more will come.

        `path` is None if the segment was deleted.
        """
        is_open = path is not None and path.suffix == OPEN_SUFFIX
        if path is None and place.descriptor is None:
            return True
        try:
            if path is not None and not is_open:
                if place == _Place() and self._is_older(path):
                    return True
                if place.damaged == _stamp(path):
                    return False
            end = sys.maxsize if is_open else _sealed_bytes(place, path)
            with place.open(path) as file:
                file.seek(place.at)
                for line in file:
                    if not line.endswith(b"\n") or place.at + len(line) > end:
                        break
                    place.at += len(line)
                    yield line[:-1]
        except FileNotFoundError:
            # The segment has been sealed meanwhile, and the next call reads it; or retention has deleted it.
            return False
        except (OSError, ValueError) as error:
            if is_open and not isinstance(error, UnfitFileError):
                raise
            if path is not None and isinstance(error, ValueError):
                place.damaged = _stamp(path)
            self._report(f"{path or 'a segment that was deleted'} cannot be read: {error}")
            return False
        return not is_open

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            self._on_problem(problem)

    def _is_older(self, path: Path) -> bool:
        """Return True if all events of a sealed segment are older than the wanted period."""
        seal = read_seal(path) if self._since_us else None
        return seal is not None and seal.sealed_time_us < self._since_us


def _sealed_bytes(place: _Place, path: Path | None) -> int:
    """Return how many bytes of the open file the seal covers.

    Bytes after those, left by a crash, become a segment of their own.
    """
    seal = read_seal(path) if path is not None and place.descriptor is not None else None
    return seal.size_bytes if seal is not None else sys.maxsize


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
