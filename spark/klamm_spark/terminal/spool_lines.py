"""The events of a spool as they come: sealed segments, and those that are being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from klamm_spark.spool.compression import decompress, is_compressed
from klamm_spark.spool.layout import SegmentName, node_folders, open_segments, parse_name, sealed_segments
from klamm_spark.spool.reader import read_seal

_READ_BYTES: Final = 1 << 20


class SpoolLines:
    """Yields each whole line of all nodes and streams once, however often `new_lines` is called.

    A segment that is being written is followed while it grows. Its file stays open: it can be read to its end after the
    server has sealed, compressed or deleted it. Lines of one stream are in order; streams are not merged.
    """

    def __init__(self, spool: Path, *, since_us: int = 0, newest: int | None = None) -> None:
        """Sealed segments that are older than `since_us` are not read, nor those before a stream's `newest` events."""
        self._spool = spool
        self._since_us = since_us
        self._newest = newest
        self._streams: dict[Path, _StreamLines] = {}
        self.problems: list[str] = []
        """Segments that could not be read, one sentence each."""

    def new_lines(self) -> Iterator[bytes]:
        """The lines that are new since the last call. Raises OSError if the spool itself cannot be read."""
        for path in node_folders(self._spool):
            folder = Path(str(path))
            stream = self._streams.get(folder)
            if stream is None:
                stream = self._streams[folder] = _StreamLines(folder, self._since_us, self.problems)
                if self._newest is not None:
                    stream.skip_all_but(self._newest)
            yield from stream.new_lines()

    def close(self) -> None:
        """Close the files of segments that are being written."""
        for stream in self._streams.values():
            stream.close()


class _StreamLines:
    """The lines of one folder."""

    def __init__(self, folder: Path, since_us: int, problems: list[str]) -> None:
        self._folder = folder
        self._since_us = since_us
        self._problems = problems
        self._finished: set[SegmentName] = set()
        self._growing: dict[SegmentName, _GrowingSegment] = {}

    def skip_all_but(self, newest: int) -> None:
        """Leave out the sealed segments before the last `newest` events."""
        events = 0
        for path in reversed(sealed_segments(self._folder)):
            name = parse_name(path.name)
            if name is not None and events >= newest:
                self._finished.add(name)
            seal = read_seal(path)
            events += seal.events if seal is not None else 0

    def new_lines(self) -> Iterator[bytes]:
        # First the open ones: a segment that is sealed between the two listings is in both, not in neither.
        being_written = open_segments(self._folder)
        sealed = sealed_segments(self._folder)
        for path in sealed:
            name = parse_name(path.name)
            if name is not None and name not in self._finished:
                self._finished.add(name)
                yield from self._rest_of(name, path)
        for path in being_written:
            name = parse_name(path.name)
            if name is None or name in self._finished:
                continue
            growing = self._growing.get(name)
            if growing is None:
                try:
                    growing = self._growing[name] = _GrowingSegment(path)
                except FileNotFoundError:
                    # It is sealed by now; the next call reads it.
                    continue
            yield from growing.new_lines()

    def _rest_of(self, name: SegmentName, path: Path) -> Iterator[bytes]:
        growing = self._growing.pop(name, None)
        if growing is not None:
            yield from growing.new_lines()
            growing.close()
            return
        if self._is_older(path):
            return
        try:
            if is_compressed(path.suffix):
                yield from decompress(path.read_bytes(), path.suffix).splitlines()
            else:
                with path.open("rb") as file:
                    yield from (line.rstrip(b"\n") for line in file)
        except FileNotFoundError:
            # Retention has deleted it.
            return
        except (OSError, ValueError) as error:
            self._problems.append(f"{path} cannot be read: {error}")

    def _is_older(self, path: Path) -> bool:
        """Whether all events of a sealed segment are older than what is wanted."""
        if not self._since_us:
            return False
        seal = read_seal(path)
        return seal is not None and seal.sealed_time_us < self._since_us

    def close(self) -> None:
        for growing in self._growing.values():
            growing.close()


class _GrowingSegment:
    """A segment that is being written."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("rb")
        self._torn = b""

    def new_lines(self) -> Iterator[bytes]:
        while data := self._file.read(_READ_BYTES):
            *lines, self._torn = (self._torn + data).split(b"\n")
            yield from lines

    def close(self) -> None:
        self._file.close()
