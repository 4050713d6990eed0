"""Writing the spool: segments, syncs, seals, limits, and what is left to do after a crash.

One thread uses a `Spool`. Every failure of the disk leaves it in order: what was being written is cut off again, and
the caller tries again later. A segment that has its final name is never touched again; what may be left to do then is
to make the name durable and to clean up. Layout and names: `klamm_spark.spool_layout`.
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
    UNREADABLE_SUFFIX,
    Seal,
    SegmentName,
    chain_of,
    open_segments,
    parse_name,
    sealed_segments,
    unreadable_files,
)

if TYPE_CHECKING:
    from klamm.runtime import Clock
    from klamm_spark.settings import AuditSettings

log = logging.getLogger("klamm.audit")

_PIECE_BYTES: Final = 1 << 20
_RETENTION_CHECK_NS: Final = 60_000_000_000


class SpoolError(Exception):
    """Nothing can be written now; the message says why. It may be tried again."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A boot that did not end in order: its last durable event, and what was cut off behind it.

    `unreadable` says which of its files was put aside and why: nobody knows how it ended, or what was in the file.
    """

    boot: str
    last_seq: int | None
    torn_bytes: int
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Segments of one boot that retention deleted; `reason` is the setting that asked for it.

    `last_seq` and `events` are None where a seal is missing and the names do not tell, and of what was put aside.
    """

    boot: str
    first_seq: int
    last_seq: int | None
    events: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Unsynced:
    """Events of one boot that the disk may not have taken: syncing them failed."""

    boot: str
    first_seq: int
    last_seq: int


class _OpenSegment:
    """The segment that is being written. Once `failed`, its descriptor is closed and it only waits to be sealed."""

    __slots__ = (
        "descriptor",
        "events",
        "failed",
        "first_write_ns",
        "last_seq",
        "name",
        "path",
        "sha256",
        "size_bytes",
        "synced_seq",
    )

    def __init__(self, name: SegmentName, path: Path, descriptor: int, now_ns: int) -> None:
        self.name = name
        self.path = path
        self.descriptor = descriptor
        self.first_write_ns = now_ns
        self.events = 0
        self.last_seq = self.synced_seq = name.first_seq - 1
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()
        self.failed = False

    def take_stock(self, data: bytes) -> int:
        """Count the whole events that a file really holds; how many bytes behind them are torn."""
        self.events, self.last_seq = 0, self.name.first_seq - 1
        self.size_bytes = _sound_lines(data, self)
        self.sha256 = hashlib.sha256(data[: self.size_bytes])
        return len(data) - self.size_bytes


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
        self._unreadable: dict[Path, int] = {}
        self._notices: list[Deleted | Unsynced] = []
        self._leftovers: list[Path] = []
        self._directory_unsynced = False
        self.sealed_count = 0
        self._aside: dict[Path, str] = {}

    # ---- the beginning and the end

    def open(self, boot_suffix: str) -> list[Recovered]:
        """Take the folder, set right what a crash has left, and begin a boot. Raises OSError, SpoolError."""
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        # Names must sort by time, even if the wall clock has gone back.
        for path in self.folder.iterdir():
            name = parse_name(path.name)
            with contextlib.suppress(ValueError):
                wall_ms = max(wall_ms, int(name.boot[:12], 16) + 1 if name is not None else 0)
        self.boot = f"{wall_ms:012x}{boot_suffix}"
        self._last_sync_ns = self._clock.monotonic_ns()
        return recovered

    def close(self, *, final: bool = True) -> None:
        """Seal what is open and let the folder go. Raises SpoolError if that cannot be; the next start will do it.

        `final` False: events were lost, and the next start is to tell so.
        """
        try:
            segment, newest = self._segment, self._newest
            if segment is not None and segment.events:
                self._seal(final=final)
            elif newest is not None and newest.boot == self.boot:
                if final:
                    self._mark_final(newest)
            elif segment is None and not final:
                self._begin_unfinished()
            self._settle()
        finally:
            segment = self._segment
            if segment is not None:
                self._close_descriptor(segment)
                if final and not segment.events:
                    with contextlib.suppress(OSError):
                        self._files.remove(segment.path)
                self._segment = None
            self._unlock()

    def _begin_unfinished(self) -> None:
        """An empty segment: nothing else would tell the next start that this boot has been."""
        try:
            self._begin(0)
        except OSError as error:
            raise SpoolError(f"{self.folder}: {error.strerror or error}") from error

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
        """Bytes of all segments, and of files that were put aside."""
        kept = sum(self._sealed.values()) + sum(self._unreadable.values())
        return kept + (self._segment.size_bytes if self._segment is not None else 0)

    def write(self, lines: bytes, first_seq: int, last_seq: int, events: int) -> None:
        """Append whole lines, all or none. Raises SpoolError."""
        limit = self._settings.retention_bytes
        if self._settings.on_limit == "stop" and 0 <= limit < self.size_bytes + len(lines):
            # Perhaps somebody has made room by hand.
            with contextlib.suppress(OSError):
                self._sealed = self._sizes(sealed_segments(self.folder))
                self._unreadable = self._sizes(unreadable_files(self.folder))
            if limit < self.size_bytes + len(lines):
                raise SpoolError(f"{self.folder} has reached retention_bytes = {limit} and on_limit is stop")
        if self._segment is not None and self._segment.failed:
            self._seal(final=False)
        try:
            segment = self._segment or self._begin(first_seq)
            self._sync_directory()
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
            # The lines are written, and must not be written twice; `tick` goes on from a failure.
            with contextlib.suppress(SpoolError):
                self._sync()

    def _cut_torn(self, segment: _OpenSegment) -> None:
        if self._torn:
            self._files.truncate(segment.descriptor, segment.size_bytes)
            self._torn = False

    def _begin(self, first_seq: int) -> _OpenSegment:
        name = SegmentName(self.boot, first_seq)
        path = self.folder / f"{name.stem}{OPEN_SUFFIX}"
        self._directory_unsynced = True
        self._segment = _OpenSegment(name, path, self._files.open_append(path), self._clock.monotonic_ns())
        return self._segment

    def tick(self) -> None:
        """Sync, seal and delete what is due, each even if another fails. Raises the first SpoolError."""
        errors: list[SpoolError] = []
        for step in (self._settle, self._sync_if_due, self._seal_if_due, self._delete_if_due):
            try:
                step()
            except SpoolError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def take_notices(self) -> list[Deleted | Unsynced]:
        """What is gone, or may be, since the last call; whoever takes it has to tell of it."""
        notices, self._notices = _joined(self._notices), []
        return notices

    def _sync_if_due(self) -> None:
        interval_ns = self._settings.fsync_interval_ms * 1_000_000
        if self._unsynced and self._clock.monotonic_ns() - self._last_sync_ns >= interval_ns:
            self._sync()

    def _seal_if_due(self) -> None:
        segment, settings = self._segment, self._settings
        if segment is None or not segment.events:
            return
        now_ns = self._clock.monotonic_ns()
        old = now_ns - segment.first_write_ns >= settings.segment_age_ms * 1_000_000
        if old or segment.failed or segment.size_bytes >= settings.segment_bytes:
            self._next_retention_ns = now_ns
            self._seal(final=False)

    def _delete_if_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_retention_ns:
            self._delete_old()
            self._next_retention_ns = now_ns + _RETENTION_CHECK_NS

    @property
    def next_tick_ns(self) -> int:
        """When `tick` next has work."""
        due_ns = self._next_retention_ns
        if self._directory_unsynced or self._leftovers:
            return 0
        if self._segment is not None:
            if self._segment.failed:
                return 0
            due_ns = min(due_ns, self._segment.first_write_ns + self._settings.segment_age_ms * 1_000_000)
        if self._unsynced:
            due_ns = min(due_ns, self._last_sync_ns + self._settings.fsync_interval_ms * 1_000_000)
        return due_ns

    def _sync(self) -> None:
        segment = self._segment
        assert segment is not None
        self._unsynced = False
        self._last_sync_ns = self._clock.monotonic_ns()
        try:
            self._files.fsync(segment.descriptor)
        except OSError as error:
            # The system may have forgotten what it could not write: a second fsync would succeed and prove nothing.
            segment.failed = True
            self._torn = False
            self._close_descriptor(segment)
            if segment.last_seq > segment.synced_seq:
                self._notices.append(Unsynced(segment.name.boot, segment.synced_seq + 1, segment.last_seq))
            raise SpoolError(f"{segment.path}: fsync: {error.strerror or error}") from error
        segment.synced_seq = segment.last_seq

    def _close_descriptor(self, segment: _OpenSegment) -> None:
        if segment.descriptor >= 0:
            with contextlib.suppress(OSError):
                self._files.close(segment.descriptor)
            segment.descriptor = -1

    def _sync_directory(self) -> None:
        if self._directory_unsynced:
            self._files.sync_directory(self.folder)
            self._directory_unsynced = False

    def _settle(self) -> None:
        """Make names durable, then clean up behind them. Raises SpoolError; the next call goes on with it."""
        try:
            self._sync_directory()
            while self._leftovers:
                self._files.remove(self._leftovers[-1])
                self._leftovers.pop()
        except OSError as error:
            raise SpoolError(f"{self.folder}: {error.strerror or error}") from error

    # ---- sealing

    def _seal(self, *, final: bool) -> None:
        segment = self._segment
        assert segment is not None
        unsynced: SpoolError | None = None
        try:
            if not segment.failed:
                self._cut_torn(segment)
                try:
                    self._sync()
                except SpoolError as error:
                    unsynced = error
            if segment.failed:
                self._finish_failed(segment)
            else:
                self._finish(segment, final=final)
        except OSError as error:
            # It stays open and, unless it has failed, grows on until sealing works.
            raise SpoolError(f"{segment.path}: {error.strerror or error}") from error
        self._segment = None
        self._close_descriptor(segment)
        self._settle()
        if unsynced is not None:
            raise unsynced

    def _finish_failed(self, segment: _OpenSegment) -> None:
        """Seal a copy of what can still be read, so that it is synced as a whole."""
        data = segment.path.read_bytes()[: segment.size_bytes]
        torn_bytes = 0
        if hashlib.sha256(data).digest() != segment.sha256.digest():
            torn_bytes = segment.take_stock(data)
        if segment.events:
            self._finish(segment, clean=False, torn_bytes=torn_bytes, copied=data[: segment.size_bytes])
        else:
            self._leftovers.append(segment.path)

    def _finish(
        self,
        segment: _OpenSegment,
        *,
        final: bool = False,
        clean: bool = True,
        torn_bytes: int = 0,
        copied: bytes | None = None,
    ) -> None:
        """Write the seal and give the segment its final name. An OSError means that it does not have it yet."""
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
        codec, size_bytes = self._settings.compression, segment.size_bytes
        renamed = codec == "none" and copied is None
        self._directory_unsynced = True
        try:
            if renamed:
                self._files.rename(segment.path, target)
            else:
                packed = _packed(segment.path.read_bytes() if copied is None else copied, codec)
                size_bytes = len(packed)
                self._files.write_whole(target, packed)
        except OSError:
            # A network file system may have done what it could not confirm.
            if not target.exists():
                raise
        if not renamed:
            self._leftovers.append(segment.path)
        self._sealed[target] = size_bytes
        self._newest = seal
        self.sealed_count += 1
        if previous is not None and not self._has_segment(previous.segment):
            self._leftovers.append(self.folder / f"{previous.segment}{SEAL_SUFFIX}")

    def _has_segment(self, stem: str) -> bool:
        return any(path.name.partition(".")[0] == stem for path in self._sealed)

    # ---- limits

    def _sizes(self, paths: list[Path]) -> dict[Path, int]:
        """Those that are there, with their sizes."""
        found: dict[Path, int] = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found[path] = self._files.stat(path).st_size
        return found

    def _delete_old(self) -> None:
        settings, reason, count = self._settings, "", 0
        kept = self._sealed | self._unreadable
        total = self.size_bytes
        limit_us = self._clock.wall_us() - settings.retention_ms * 1000
        paths = sorted(kept)
        try:
            for index, path in enumerate(paths):
                try:
                    stat = self._files.stat(path)
                except FileNotFoundError:
                    # Somebody else has deleted it, and knows.
                    total -= kept[path]
                    self._forget(path)
                    continue
                seal = self._seal_of(path) if path in self._sealed else None
                sealed_us = seal.sealed_time_us if seal is not None else stat.st_mtime_ns // 1000
                if settings.retention_ms >= 0 and sealed_us < limit_us:
                    reason = "retention_ms"
                elif settings.on_limit == "delete_oldest" and 0 <= settings.retention_bytes < total:
                    reason = "retention_bytes"
                else:
                    break
                self._files.remove(path)
                total -= kept[path]
                self._forget(path)
                # There are no events in a seal.
                if path.suffixes[0] != SEAL_SUFFIX:
                    self._notices.append(self._deleted(path, seal, paths[index + 1 :], reason))
                count += 1
        except OSError as error:
            raise SpoolError(f"{path}: {error.strerror or error}") from error
        finally:
            if count:
                log.warning("audit spool %s: %d segments or files put aside deleted (%s)", self.folder, count, reason)
        self._settle()

    def _forget(self, path: Path) -> None:
        """A segment is gone; its seal goes too, unless the chain goes on from it."""
        self._directory_unsynced = True
        if self._unreadable.pop(path, None) is not None:
            return
        del self._sealed[path]
        stem = path.name.partition(".")[0]
        if self._newest is None or stem != self._newest.segment:
            self._leftovers.append(self.folder / f"{stem}{SEAL_SUFFIX}")

    def _deleted(self, path: Path, seal: Seal | None, later: list[Path], reason: str) -> Deleted:
        if seal is not None:
            return Deleted(seal.boot, seal.first_seq, seal.last_seq, seal.events, reason)
        name = parse_name(path.name)
        assert name is not None
        if path.suffix == UNREADABLE_SUFFIX:
            return Deleted(name.boot, name.first_seq, None, None, reason)
        after = next((each for other in later if (each := parse_name(other.name)) is not None and each > name), None)
        if after is None and self._segment is not None:
            after = self._segment.name
        last_seq = after.first_seq - 1 if after is not None and after.boot == name.boot else None
        return Deleted(name.boot, name.first_seq, last_seq, None, reason)

    def _seal_of(self, path: Path) -> Seal | None:
        name = parse_name(path.name)
        assert name is not None
        try:
            return Seal.parse(self._files.read(self.folder / f"{name.stem}{SEAL_SUFFIX}"))
        except (OSError, ValueError) as error:
            log.error("audit spool %s: no seal: %s", path, error)
            return None

    # ---- after a crash

    def _recover(self) -> list[Recovered]:
        for leftover in self.folder.glob("*.tmp"):
            self._files.remove(leftover)
        self._directory_unsynced = True
        sealed = {path.name.partition(".")[0]: path for path in sealed_segments(self.folder)}
        left = {self._left_open(path, sealed.get(path.stem)) for path in open_segments(self.folder)}
        opened = sorted(path for path in left if path is not None)
        self._sealed = self._sizes(sealed_segments(self.folder))
        newest = self._newest = self._newest_seal({path.stem for path in opened})
        recovered = [one for path in opened if (one := self._recover_segment(path)) is not None]
        crashed = {one.boot for one in recovered}
        self._unreadable = self._sizes(unreadable_files(self.folder))
        aside = [(name, path) for path in self._unreadable if (name := parse_name(path.name)) is not None]
        recovered[:0] = self._untold(aside, crashed)
        # A boot that came after it and left no more than a beginning may not have got to tell of it.
        if newest is not None and not newest.final and newest.boot not in crashed | {name.boot for name, _ in aside}:
            recovered.insert(0, Recovered(newest.boot, newest.last_seq, 0))
        self._settle()
        return recovered

    def _read_or_put_aside(self, path: Path) -> bytes | None:
        try:
            return self._files.read(path)
        except OSError as error:
            self._put_aside(path, error.strerror or str(error))
            return None

    def _put_aside(self, path: Path, why: str) -> None:
        """Out of the way, and kept for whoever can make something of it. Raises OSError if even that cannot be."""
        target = path.with_name(path.name + UNREADABLE_SUFFIX)
        log.error("audit spool: %s cannot be read (%s); it is put aside as %s", path, why, target.name)
        self._files.rename(path, target)
        self._directory_unsynced = True
        self._aside[target] = why

    @property
    def unreadable_count(self) -> int:
        """How many files `open` has put aside."""
        return len(self._aside)

    def _untold(self, aside: list[tuple[SegmentName, Path]], crashed: set[str]) -> list[Recovered]:
        """The boots of what was put aside now, or before by a boot that left nothing and so cannot have told of it.

        Of a boot that is told to have crashed, an unreadable seal means no more loss.
        """
        newest = self._newest
        recovered: dict[str, Recovered] = {}
        for name, path in aside:
            if path not in self._aside and newest is not None and newest.boot > name.boot:
                continue
            last_seq = name.first_seq - 1
            if path.suffixes[0] == SEAL_SUFFIX:
                if name.boot in crashed:
                    continue
                last_seq = max(last_seq, self._last_seq_in(name))
            why = self._aside.get(path, "put aside by an earlier start")
            recovered.setdefault(
                name.boot, Recovered(name.boot, last_seq if last_seq >= 0 else None, 0, f"{path.name}: {why}")
            )
        return list(recovered.values())

    def _last_seq_in(self, name: SegmentName) -> int:
        """The last event of a sealed segment, as far as that can be read; -1 if it cannot."""
        for path in self._sealed:
            if path.name.partition(".")[0] == name.stem:
                segment = _OpenSegment(name, path, -1, 0)
                with contextlib.suppress(OSError, ValueError):
                    segment.take_stock(_unpacked(self._files.read(path), path.suffix))
                return segment.last_seq
        return -1

    def _left_open(self, path: Path, sealed: Path | None) -> Path | None:
        """What of an open segment, of which there may be a sealed copy, is in no sealed one; None if there is nothing.

        The copy may have been there, and been read, before the last lines were written: those get a segment of their
        own.
        """
        if sealed is None:
            return path
        data = self._read_or_put_aside(path)
        if data is None:
            return None
        seal = self._seal_of(path)
        if seal is None:
            # Nobody can say what the copy must hold.
            self._files.remove(sealed)
            return path
        rest = None
        tail = data[seal.size_bytes :]
        if tail:
            rest = self.folder / f"{SegmentName(seal.boot, seal.last_seq + 1).stem}{OPEN_SUFFIX}"
            self._files.write_whole(rest, tail)
            self._files.sync_directory(self.folder)
        self._files.remove(path)
        return rest

    def _newest_seal(self, unsealed: set[str]) -> Seal | None:
        """The chain goes on from the newest one that can be read."""
        newest: Seal | None = None
        for path in sorted(self.folder.glob(f"*{SEAL_SUFFIX}"), reverse=True):
            if path.stem in unsealed or parse_name(path.name) is None:
                continue
            if newest is None:
                newest = self._read_newest_seal(path)
            elif not self._has_segment(path.stem):
                self._files.remove(path)
        return newest

    def _read_newest_seal(self, path: Path) -> Seal | None:
        data = self._read_or_put_aside(path)
        if data is None:
            return None
        try:
            seal = Seal.parse(data)
        except ValueError as error:
            self._put_aside(path, str(error))
            return None
        for stem in (seal.segment, SegmentName(seal.boot, seal.first_seq).stem):
            if stem != path.stem:
                self._put_aside(path, f"it is the seal of {stem}")
                return None
        return seal

    def _recover_segment(self, path: Path) -> Recovered | None:
        name = parse_name(path.name)
        assert name is not None
        data = self._read_or_put_aside(path)
        if data is None:
            return None
        segment = _OpenSegment(name, path, self._files.open_append(path), self._clock.monotonic_ns())
        try:
            torn_bytes = segment.take_stock(data)
            if torn_bytes and not segment.events and b"\n" in data:
                # More than one torn line.
                self._put_aside(path, "there is no event in it")
                return None
            if torn_bytes:
                log.warning("audit spool %s: a torn tail of %d bytes is cut off", path, torn_bytes)
                self._files.truncate(segment.descriptor, segment.size_bytes)
            self._files.fsync(segment.descriptor)
        finally:
            self._files.close(segment.descriptor)
        if not segment.events:
            self._files.remove(path)
            last_seq = name.first_seq - 1 if name.first_seq else None
            return Recovered(name.boot, last_seq, torn_bytes)
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
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return position
        segment.events += 1
        position = end + 1


def _joined(notices: list[Deleted | Unsynced]) -> list[Deleted | Unsynced]:
    """Neighbours of one boot and reason as one, where both know what they had."""
    joined: list[Deleted | Unsynced] = []
    for one in notices:
        last = joined[-1] if joined else None
        if (
            isinstance(last, Deleted)
            and isinstance(one, Deleted)
            and (last.boot, last.reason) == (one.boot, one.reason)
            and last.events is not None
            and one.events is not None
        ):
            joined[-1] = replace(last, last_seq=one.last_seq, events=last.events + one.events)
        else:
            joined.append(one)
    return joined


def _packed(data: bytes, codec: str) -> bytes:
    if codec == "none":
        return data
    import cramjam

    return bytes(cramjam.zstd.compress(data) if codec == "zstd" else cramjam.gzip.compress(data))


def _unpacked(data: bytes, suffix: str) -> bytes:
    """What a sealed segment with that last suffix holds. Raises ValueError."""
    if suffix == SEALED_SUFFIX:
        return data
    import cramjam

    try:
        return bytes(cramjam.zstd.decompress(data) if suffix == ".zst" else cramjam.gzip.decompress(data))
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
