"""Writing the spool: segments, syncs, seals, limits, and what is left to do after a crash.

One thread uses a `Spool`. Every failure of the disk leaves it in order: what was being written is cut off again, and
the caller tries again later. Layout and names: `klamm_spark.spool_layout`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from klamm_spark.event import SCHEMA_VERSION
from klamm_spark.files import SpoolFiles
from klamm_spark.spool_layout import (
    COMPRESSED_SUFFIXES,
    NO_CHAIN,
    OPEN_SUFFIX,
    SEAL_SUFFIX,
    SEALED_SUFFIX,
    Seal,
    SegmentName,
    chain_of,
    open_segments,
    parse_name,
    sealed_segments,
)

if TYPE_CHECKING:
    from klamm import Clock
    from klamm_spark.settings import AuditSettings

log = logging.getLogger("klamm.audit")

_PIECE_BYTES: Final = 1 << 20
_RETENTION_CHECK_NS: Final = 60_000_000_000


class SpoolError(Exception):
    """Nothing can be written now; the message says why. It may be tried again."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A boot that did not end in order: its last durable event, and what was cut off behind it."""

    boot: str
    last_seq: int | None
    torn_bytes: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """Segments of one boot that retention deleted; `reason` is the setting that asked for it."""

    boot: str
    first_seq: int
    last_seq: int
    events: int
    reason: str


class _OpenSegment:
    """The segment that is being written."""

    __slots__ = ("descriptor", "events", "first_write_ns", "last_seq", "name", "path", "sha256", "size_bytes")

    def __init__(self, name: SegmentName, path: Path, descriptor: int, now_ns: int) -> None:
        self.name = name
        self.path = path
        self.descriptor = descriptor
        self.first_write_ns = now_ns
        self.events = 0
        self.last_seq = name.first_seq - 1
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()


class Spool:
    """The folder of one node. `open`, then `write` and `tick`, then `close`."""

    def __init__(self, folder: Path, settings: AuditSettings, clock: Clock, files: SpoolFiles | None = None) -> None:
        self.folder = folder
        self._settings = settings
        self._clock = clock
        self._files = files or SpoolFiles()
        self._suffix = SEALED_SUFFIX + COMPRESSED_SUFFIXES[settings.compression]
        self.boot = ""
        self._lock: int | None = None
        self._segment: _OpenSegment | None = None
        self._torn = False
        self._unsynced = False
        self._last_sync_ns = 0
        self._next_retention_ns = 0
        self._newest: Seal | None = None
        self._sealed: dict[Path, int] = {}
        self.sealed_count = 0

    # ---- the beginning and the end

    def open(self, boot_suffix: str) -> list[Recovered]:
        """Take the folder, set right what a crash has left, and begin a boot. Raises OSError, SpoolError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = self._files.lock(self.folder / ".lock")
        except BlockingIOError as error:
            raise SpoolError(f"the spool {self.folder} is in use by another server") from error
        try:
            recovered = self._recover()
        except BaseException:
            self._unlock()
            raise
        wall_ms = self._clock.wall_ms()
        if self._newest is not None:
            # Names must sort by time, even if the wall clock has gone back.
            with contextlib.suppress(ValueError):
                wall_ms = max(wall_ms, int(self._newest.boot[:12], 16) + 1)
        self.boot = f"{wall_ms:012x}{boot_suffix}"
        self._last_sync_ns = self._clock.monotonic_ns()
        return recovered

    def close(self) -> None:
        """Seal what is open and let the folder go. Raises SpoolError if that cannot be; the next start will do it."""
        try:
            if self._segment is not None and self._segment.events:
                self._seal(final=True)
            elif self._newest is not None and self._newest.boot == self.boot:
                self._mark_final(self._newest)
        finally:
            if self._segment is not None:
                self._files.close(self._segment.descriptor)
                if not self._segment.events:
                    self._files.remove(self._segment.path)
                self._segment = None
            self._unlock()

    def _mark_final(self, seal: Seal) -> None:
        try:
            self._files.write_whole(self.folder / f"{seal.segment}{SEAL_SUFFIX}", replace(seal, final=True).to_json())
            self._files.sync_directory(self.folder)
        except OSError as error:
            raise SpoolError(f"{self.folder}: {error.strerror or error}") from error

    def _unlock(self) -> None:
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None

    # ---- writing

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(self._sealed.values()) + (self._segment.size_bytes if self._segment is not None else 0)

    def write(self, lines: bytes, first_seq: int, last_seq: int, events: int) -> None:
        """Append whole lines, all or none. Raises SpoolError."""
        limit = self._settings.retention_bytes
        if self._settings.on_limit == "stop" and 0 <= limit < self.size_bytes + len(lines):
            raise SpoolError(f"{self.folder} has reached retention_bytes = {limit} and on_limit is stop")
        try:
            segment = self._segment or self._begin(first_seq)
            self._cut_torn(segment)
            self._torn = True
            view = memoryview(lines)
            while view:
                view = view[self._files.write(segment.descriptor, view[:_PIECE_BYTES]) :]
            self._torn = False
        except OSError as error:
            if self._segment is not None:
                with contextlib.suppress(OSError):
                    self._cut_torn(self._segment)
            raise SpoolError(f"{self.folder}: {error.strerror or error}") from error
        segment.size_bytes += len(lines)
        segment.sha256.update(lines)
        segment.events += events
        segment.last_seq = last_seq
        self._unsynced = True
        if self._settings.fsync_interval_ms == 0:
            self._sync()

    def _cut_torn(self, segment: _OpenSegment) -> None:
        if self._torn:
            self._files.truncate(segment.descriptor, segment.size_bytes)
            self._torn = False

    def _begin(self, first_seq: int) -> _OpenSegment:
        name = SegmentName(self.boot, first_seq)
        path = self.folder / f"{name.stem}{OPEN_SUFFIX}"
        descriptor = self._files.open_append(path)
        self._segment = _OpenSegment(name, path, descriptor, self._clock.monotonic_ns())
        self._files.sync_directory(self.folder)
        return self._segment

    def tick(self) -> list[Deleted]:
        """Sync, seal and delete what is due; what was deleted. Raises SpoolError, having done what could be."""
        now_ns = self._clock.monotonic_ns()
        segment = self._segment
        if segment is not None and segment.events:
            age_ns = now_ns - segment.first_write_ns
            if (
                segment.size_bytes >= self._settings.segment_bytes
                or age_ns >= self._settings.segment_age_ms * 1_000_000
            ):
                self._seal(final=False)
                self._next_retention_ns = now_ns
        if self._unsynced and now_ns - self._last_sync_ns >= self._settings.fsync_interval_ms * 1_000_000:
            self._sync()
        if now_ns >= self._next_retention_ns:
            self._next_retention_ns = now_ns + _RETENTION_CHECK_NS
            return self._delete_old()
        return []

    @property
    def next_tick_ns(self) -> int:
        """When `tick` next has work."""
        due_ns = self._next_retention_ns
        if self._segment is not None:
            due_ns = min(due_ns, self._segment.first_write_ns + self._settings.segment_age_ms * 1_000_000)
        if self._unsynced:
            due_ns = min(due_ns, self._last_sync_ns + self._settings.fsync_interval_ms * 1_000_000)
        return due_ns

    def _sync(self) -> None:
        assert self._segment is not None
        try:
            self._files.fsync(self._segment.descriptor)
        except OSError as error:
            raise SpoolError(f"{self._segment.path}: fsync: {error.strerror or error}") from error
        self._unsynced = False
        self._last_sync_ns = self._clock.monotonic_ns()

    # ---- sealing

    def _seal(self, *, final: bool) -> None:
        segment = self._segment
        assert segment is not None
        try:
            self._cut_torn(segment)
            self._sync()
            self._finish(segment, final=final)
        except OSError as error:
            # It stays open and grows on until sealing works.
            raise SpoolError(f"{segment.path}: {error.strerror or error}") from error
        self._files.close(segment.descriptor)
        self._segment = None

    def _finish(self, segment: _OpenSegment, *, final: bool = False, clean: bool = True, torn_bytes: int = 0) -> None:
        sha256, previous = segment.sha256.hexdigest(), self._newest
        previous_chain = previous.chain if previous is not None else NO_CHAIN
        seal = Seal(
            schema_version=SCHEMA_VERSION,
            node=self.folder.name,
            boot=segment.name.boot,
            index=previous.index + 1 if previous is not None else 0,
            segment=segment.name.stem,
            first_seq=segment.name.first_seq,
            last_seq=segment.last_seq,
            events=segment.events,
            size_bytes=segment.size_bytes,
            sha256=sha256,
            previous_chain=previous_chain,
            chain=chain_of(previous_chain, sha256),
            sealed_time_us=self._clock.wall_us(),
            torn_bytes=torn_bytes,
            clean=clean,
            final=final,
        )
        self._files.write_whole(self.folder / f"{seal.segment}{SEAL_SUFFIX}", seal.to_json())
        target = self.folder / f"{seal.segment}{self._suffix}"
        if self._settings.compression == "none":
            self._files.rename(segment.path, target)
        else:
            self._files.write_whole(target, _compress(segment.path.read_bytes(), self._settings.compression))
            self._files.remove(segment.path)
        self._files.sync_directory(self.folder)
        self._sealed[target] = target.stat().st_size
        self._newest = seal
        self.sealed_count += 1
        if previous is not None and not self._has_segment(previous.segment):
            self._files.remove(self.folder / f"{previous.segment}{SEAL_SUFFIX}")

    def _has_segment(self, stem: str) -> bool:
        return any(path.name.partition(".")[0] == stem for path in self._sealed)

    # ---- limits

    def _delete_old(self) -> list[Deleted]:
        settings, deleted = self._settings, []
        total = self.size_bytes
        limit_us = self._clock.wall_us() - settings.retention_ms * 1000
        for path in sorted(self._sealed):
            seal = self._seal_of(path)
            if settings.retention_ms >= 0 and seal is not None and seal.sealed_time_us < limit_us:
                reason = "retention_ms"
            elif settings.on_limit == "delete_oldest" and 0 <= settings.retention_bytes < total:
                reason = "retention_bytes"
            else:
                break
            total -= self._sealed[path]
            self._delete(path, seal)
            if seal is not None:
                deleted.append(Deleted(seal.boot, seal.first_seq, seal.last_seq, seal.events, reason))
        if deleted:
            log.warning(
                "audit spool %s: %d segments with %d events deleted (%s)",
                self.folder,
                len(deleted),
                sum(one.events for one in deleted),
                deleted[-1].reason,
            )
        return _joined(deleted)

    def _seal_of(self, path: Path) -> Seal | None:
        name = parse_name(path.name)
        assert name is not None
        try:
            return Seal.read(self.folder / f"{name.stem}{SEAL_SUFFIX}")
        except (OSError, ValueError) as error:
            log.error("audit spool %s: no seal: %s", path, error)
            return None

    def _delete(self, path: Path, seal: Seal | None) -> None:
        try:
            self._files.remove(path)
            if seal is not None and (self._newest is None or seal.index != self._newest.index):
                self._files.remove(self.folder / f"{seal.segment}{SEAL_SUFFIX}")
            self._files.sync_directory(self.folder)
        except OSError as error:
            raise SpoolError(f"{path}: {error.strerror or error}") from error
        del self._sealed[path]

    # ---- after a crash

    def _recover(self) -> list[Recovered]:
        for leftover in self.folder.glob("*.tmp"):
            self._files.remove(leftover)
        opened = open_segments(self.folder)
        sealed_stems = {path.name.partition(".")[0] for path in sealed_segments(self.folder)}
        for path in [path for path in opened if path.stem in sealed_stems]:
            # The crash came after the compressed segment was whole.
            self._files.remove(path)
            opened.remove(path)
        self._sealed = {path: path.stat().st_size for path in sealed_segments(self.folder)}
        self._newest = self._newest_seal({path.stem for path in opened})
        recovered = [self._recover_segment(path) for path in opened]
        if not opened and self._newest is not None and not self._newest.final:
            recovered.append(Recovered(self._newest.boot, self._newest.last_seq, 0))
        self._files.sync_directory(self.folder)
        return recovered

    def _newest_seal(self, unsealed: set[str]) -> Seal | None:
        newest: Seal | None = None
        for path in sorted(self.folder.glob(f"*{SEAL_SUFFIX}"), reverse=True):
            if path.stem in unsealed:
                continue
            if newest is None:
                newest = Seal.read(path)
            elif not self._has_segment(path.stem):
                self._files.remove(path)
        return newest

    def _recover_segment(self, path: Path) -> Recovered:
        name = parse_name(path.name)
        assert name is not None
        data = path.read_bytes()
        segment = _OpenSegment(name, path, self._files.open_append(path), self._clock.monotonic_ns())
        try:
            end = _sound_lines(data, segment)
            torn_bytes = len(data) - end
            if torn_bytes:
                log.warning("audit spool %s: a torn tail of %d bytes is cut off", path, torn_bytes)
                self._files.truncate(segment.descriptor, end)
            self._files.fsync(segment.descriptor)
        finally:
            self._files.close(segment.descriptor)
        if not segment.events:
            self._files.remove(path)
            last_seq = name.first_seq - 1 if name.first_seq else None
            return Recovered(name.boot, last_seq, torn_bytes)
        segment.size_bytes = end
        segment.sha256.update(data[:end])
        self._finish(segment, clean=False, torn_bytes=torn_bytes)
        return Recovered(name.boot, segment.last_seq, torn_bytes)


def _sound_lines(data: bytes, segment: _OpenSegment) -> int:
    """Where the last whole event ends; counts the events up to there."""
    position = 0
    while True:
        end = data.find(b"\n", position)
        if end < 0:
            return position
        try:
            event: Any = json.loads(data[position:end])
            segment.last_seq = int(event["seq"])
        except (ValueError, TypeError, KeyError):
            return position
        segment.events += 1
        position = end + 1


def _joined(deleted: list[Deleted]) -> list[Deleted]:
    """Neighbours of one boot and reason as one."""
    joined: list[Deleted] = []
    for one in deleted:
        last = joined[-1] if joined else None
        if last is not None and (last.boot, last.reason) == (one.boot, one.reason):
            joined[-1] = replace(last, last_seq=one.last_seq, events=last.events + one.events)
        else:
            joined.append(one)
    return joined


def _compress(data: bytes, codec: str) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data) if codec == "zstd" else cramjam.gzip.compress(data))
