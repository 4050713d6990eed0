"""`OpenSegment`: the segment that is being written, on the writer's thread of `AuditSink`. `Recovery` uses it at a
start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from klamm_spark.spool.compression import Compressor
from klamm_spark.spool.layout import SegmentName, day_of, digests_of
from klamm_spark.storage.files import SpoolFiles

_TIME_US: Final = re.compile(rb'"time_us":(\d{1,16})\D')
_BOOT_TIME_DIGITS: Final = 12


class WholeEvents(NamedTuple):
    """The whole events at the beginning of a segment's lines."""

    events: int
    last_seq: int
    size_bytes: int


def count_whole_events(data: bytes, name: SegmentName) -> WholeEvents:
    """Count the events before the first line that is torn or no event."""
    events, last_seq, size_bytes = 0, name.first_seq - 1, 0
    while True:
        end = data.find(b"\n", size_bytes)
        if end < 0:
            break
        try:
            event: Any = json.loads(data[size_bytes:end])
            last_seq = int(event["seq"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            break
        events += 1
        size_bytes = end + 1
    return WholeEvents(events, last_seq, size_bytes)


def day_of_lines(lines: bytes, name: SegmentName) -> str:
    """Return the day of the first event. After a crash the same lines thus get the same folder.

    If the event has no time, this is the day of the boot.
    """
    found = _TIME_US.search(lines, 0, lines.find(b"\n"))
    return day_of(int(found[1]) if found else int(name.boot[:_BOOT_TIME_DIGITS], 16) * 1000)


class OpenSegment:
    """An `.open` file, and the values for its seal.

    `events`, `last_seq`, `size_bytes`, `sha256` and `digests` (one for each line) count whole writes only. `day` is the
    day of the first event, and `synced_seq` the last event that the disk has confirmed. After a sync has `failed`, the
    descriptor is closed and the segment only waits to be sealed. With a `codec`, each write also compresses its lines
    in memory: to compress a whole segment when it is sealed would stop the writer for longer.
    """

    def __init__(self, name: SegmentName, path: Path, files: SpoolFiles, now_ns: int, codec: str = "none") -> None:
        """Open or create the file. Raises OSError."""
        self.name = name
        self.path = path
        self.first_write_ns = now_ns
        self.day = ""
        self.events = 0
        self.last_seq = self.synced_seq = name.first_seq - 1
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()
        self.digests: list[str] = []
        self.failed = False
        self._torn = False
        self._compressor = Compressor(codec) if codec != "none" else None
        self._files = files
        self._descriptor = files.open_append(self.path)

    def append(self, lines: bytes, last_seq: int, events: int) -> None:
        """Write all lines or none. Raises OSError."""
        try:
            self.cut_torn()
            self._torn = True
            self._files.write_all(self._descriptor, lines)
        except OSError:
            with contextlib.suppress(OSError):
                self.cut_torn()
            raise
        self._torn = False
        self.day = self.day or day_of_lines(lines, self.name)
        self.size_bytes += len(lines)
        self.sha256.update(lines)
        self.digests += digests_of(lines)
        if self._compressor is not None:
            self._compressor.add(lines)
        self.events += events
        self.last_seq = last_seq

    def cut_torn(self) -> None:
        """Cut off the bytes that a failed write has left. Raises OSError."""
        if self._torn:
            self.truncate()
            self._torn = False

    def truncate(self) -> None:
        """Cut the file to `size_bytes`. Raises OSError."""
        self._files.truncate(self._descriptor, self.size_bytes)

    def sync(self) -> None:
        """Wait until the disk has all lines. Raises OSError."""
        try:
            self._files.fsync(self._descriptor)
        except OSError:
            # The system may have dropped the bytes that it could not write. A second fsync would then succeed and prove
            # nothing.
            self.failed = True
            self._torn = False
            self.close()
            raise
        self.synced_seq = self.last_seq

    def close(self) -> None:
        """Close the descriptor, if it is open."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                self._files.close(self._descriptor)
            self._descriptor = -1

    def take_compressed(self) -> bytes | None:
        """Return all lines, compressed. Without a codec, and from the second call on, return None."""
        compressor, self._compressor = self._compressor, None
        return compressor.finish() if compressor is not None else None

    def recount(self, data: bytes) -> int:
        """Count the whole events that the file really holds, and return the number of torn bytes after them."""
        self.events, self.last_seq, self.size_bytes = count_whole_events(data, self.name)
        self.day = day_of_lines(data, self.name)
        self.sha256 = hashlib.sha256(data[: self.size_bytes])
        self.digests = digests_of(data[: self.size_bytes])
        self._compressor = None
        return len(data) - self.size_bytes
