"""`Spool`: writes the spool of one stream: segments, syncs, seals and limits.

Only the writer's thread of `AuditSink` uses a `Spool`: `AuditStream` calls it there. Every failure of the
disk leaves the files in order: a partial write is cut off, and the caller tries again later. The layout and the names
are in `klamm_spark.spool.layout`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from klamm.runtime import Clock
from klamm_spark.settings.audit import AuditSettings
from klamm_spark.spool.folder import SpoolError, SpoolFolder
from klamm_spark.spool.layout import OPEN_SUFFIX, SegmentName, parse_name, segment_files
from klamm_spark.spool.losses import Deleted, Recovered, Unsynced, join_losses
from klamm_spark.spool.recovery import Recovery
from klamm_spark.spool.retention import delete_old
from klamm_spark.spool.segment import OpenSegment
from klamm_spark.spool.signatures import SealSigner
from klamm_spark.storage.files import SpoolFiles
from klamm_spark.storage.filesystems import SPOOL_IS_A_FILE

_RETENTION_CHECK_NS: Final = 60_000_000_000


class Spool:
    """The folder of one stream of a node. Call `open`, then `write` and `tick`, then `close`.

    `boot` identifies this life of the server. `unreadable_count` is the number of files that `open` could not read.
    """

    def __init__(
        self,
        folder: Path,
        settings: AuditSettings,
        clock: Clock,
        files: SpoolFiles | None = None,
        node: str | None = None,
    ) -> None:
        """Read the key for signatures, if the settings name one. Raises KeyFileError, a ValueError."""
        self.path = folder
        self.boot = ""
        self.unreadable_count = 0
        self._settings = settings
        self._clock = clock
        self._files = files or SpoolFiles()
        signer = None if settings.signing_key is None else SealSigner(settings.signing_key)
        self._folder = SpoolFolder(folder, node or folder.name, settings.compression, clock, self._files, signer)
        self._lock: int | None = None
        self._segment: OpenSegment | None = None
        self._unsynced = False
        self._last_sync_ns = 0
        self._next_retention_ns = 0
        self._losses: list[Deleted | Unsynced] = []

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments and unreadable files."""
        return self._folder.size_bytes + (self._segment.size_bytes if self._segment is not None else 0)

    @property
    def sealed_count(self) -> int:
        """Return the number of segments sealed since the start."""
        return self._folder.sealed_count

    def name_sisters(self, others: Iterable[Spool]) -> None:
        """Let each later seal name the newest seal of these spools. They must have the same writer's thread."""
        folders = [other._folder for other in others]
        self._folder.sisters = lambda: folders

    def newest_lines(self) -> bytes:
        """Return the lines of the newest sealed segment, or nothing if it cannot be read."""
        return self._folder.newest_lines()

    # ---- open and close

    def open(self, boot_suffix: str) -> list[Recovered]:
        """Lock the folder, recover it from a crash, and begin a boot. Raises OSError, SpoolError."""
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        for folder in (self.path.parent, self.path):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except FileExistsError as error:
                raise SpoolError(f"{folder} {SPOOL_IS_A_FILE}") from error
        for folder in missing:
            self._files.sync_directory(folder.parent)
        try:
            self._lock = self._files.lock(self.path / ".lock")
        except BlockingIOError as error:
            raise SpoolError(f"the spool {self.path} is in use by another server") from error
        try:
            self._folder.publish_key()
            recovery = Recovery(self._folder)
            recovered = recovery.run()
        except BaseException:
            self._unlock()
            raise
        self.unreadable_count = len(recovery.put_aside)
        self.boot = f"{self._boot_time_ms():012x}{boot_suffix}"
        self._last_sync_ns = self._clock.monotonic_ns()
        return recovered

    def _boot_time_ms(self) -> int:
        """Return the time of the boot: now, or later, because names must sort by time even if the wall clock has gone
        back.
        """
        time_ms = self._clock.wall_ms()
        for path in segment_files(self.path):
            name = parse_name(path.name)
            with contextlib.suppress(ValueError):
                time_ms = max(time_ms, int(name.boot[:12], 16) + 1 if name is not None else 0)
        return time_ms

    def close(self, *, final: bool = True) -> None:
        """Seal the open segment and unlock the folder. Raises SpoolError if the segment cannot be sealed; the next
        start seals it.

        If `final` is False, events were lost, and the next start must report it.
        """
        try:
            segment, newest = self._segment, self._folder.newest
            if segment is not None and segment.events:
                self._seal(final=final)
            elif newest is not None and newest.boot == self.boot:
                if final:
                    self._folder.mark_final(newest)
            elif segment is None and not final:
                # An empty segment: without a file, the next start would not know of this boot.
                self._begin_segment(0)
            self._folder.settle()
        except OSError as error:
            raise self._folder.error(error) from error
        finally:
            segment = self._segment
            if segment is not None:
                segment.close()
                if final and not segment.events:
                    with contextlib.suppress(OSError):
                        self._files.remove(segment.path)
                self._segment = None
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None

    # ---- writing

    def write(self, lines: bytes, first_seq: int, last_seq: int, events: int) -> None:
        """Append whole lines: all of them, or none. Raises SpoolError."""
        self._require_room(len(lines))
        if self._segment is not None and self._segment.failed:
            self._seal(final=False)
        try:
            segment = self._segment or self._begin_segment(first_seq)
            self._folder.sync_names()
            segment.append(lines, last_seq, events)
        except OSError as error:
            raise self._folder.error(error) from error
        self._unsynced = True
        if self._settings.fsync_interval_ms == 0:
            # The lines are written, and must not be written twice; `tick` handles a failure.
            with contextlib.suppress(SpoolError):
                self._sync()

    def _require_room(self, more_bytes: int) -> None:
        settings = self._settings
        limit, deletes = settings.retention_bytes, settings.on_limit == "delete_oldest"
        if (deletes and settings.delete_unshipped) or not 0 <= limit < self.size_bytes + more_bytes:
            return
        # A user may have deleted segments, or `ship` may have copied them.
        with contextlib.suppress(OSError):
            self._folder.measure()
        if deletes:
            delete_old(self._folder, settings, self._clock, self._segment, self._losses.append, more_bytes)
        if limit < self.size_bytes + more_bytes:
            why = "nothing that could be deleted was shipped" if deletes else "on_limit is stop"
            raise SpoolError(f"{self.path} has reached retention_bytes = {limit} and {why}")

    def _begin_segment(self, first_seq: int) -> OpenSegment:
        name = SegmentName(self.boot, first_seq)
        path = self.path / f"{name.stem}{OPEN_SUFFIX}"
        self._folder.names_changed()
        self._segment = OpenSegment(name, path, self._files, self._clock.monotonic_ns(), self._settings.compression)
        return self._segment

    # ---- periodic work

    def tick(self) -> None:
        """Sync, seal and delete if these are due, each even if another fails. Raises the first SpoolError."""
        errors: list[SpoolError] = []
        for step in (self._folder.settle, self._sync_if_due, self._seal_if_due, self._delete_if_due):
            try:
                step()
            except SpoolError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def next_tick_ns(self) -> int:
        """Return the time at which `tick` next has work, on the monotonic clock."""
        due_ns = self._next_retention_ns
        if not self._folder.is_settled:
            return 0
        if self._segment is not None:
            if self._segment.failed:
                return 0
            due_ns = min(due_ns, self._segment.first_write_ns + self._settings.segment_age_ms * 1_000_000)
        if self._unsynced:
            due_ns = min(due_ns, self._last_sync_ns + self._settings.fsync_interval_ms * 1_000_000)
        return due_ns

    def take_losses(self) -> list[Deleted | Unsynced]:
        """Return the certain and possible losses since the last call. The caller must record them as events."""
        losses, self._losses = join_losses(self._losses), []
        return losses

    def _sync_if_due(self) -> None:
        interval_ns = self._settings.fsync_interval_ms * 1_000_000
        if self._unsynced and self._clock.monotonic_ns() - self._last_sync_ns >= interval_ns:
            self._sync()

    def _sync(self) -> None:
        segment = self._segment
        assert segment is not None
        self._unsynced = False
        self._last_sync_ns = self._clock.monotonic_ns()
        try:
            segment.sync()
        except OSError as error:
            if segment.last_seq > segment.synced_seq:
                self._losses.append(Unsynced(segment.name.boot, segment.synced_seq + 1, segment.last_seq))
            raise SpoolError(f"{segment.path}: fsync: {error.strerror or error}") from error

    def _seal_if_due(self) -> None:
        segment, settings = self._segment, self._settings
        if segment is None or not segment.events:
            return
        now_ns = self._clock.monotonic_ns()
        old = now_ns - segment.first_write_ns >= settings.segment_age_ms * 1_000_000
        if old or segment.failed or segment.size_bytes >= settings.segment_bytes:
            self._next_retention_ns = now_ns
            self._seal(final=False)

    def _seal(self, *, final: bool) -> None:
        segment = self._segment
        assert segment is not None
        unsynced: SpoolError | None = None
        try:
            if not segment.failed:
                segment.cut_torn()
                try:
                    self._sync()
                except SpoolError as error:
                    unsynced = error
            if segment.failed:
                self._folder.seal_failed(segment)
            else:
                self._folder.seal(segment, final=final)
        except OSError as error:
            # The segment stays open and, unless it has failed, grows on until it can be sealed.
            raise SpoolError(f"{segment.path}: {error.strerror or error}") from error
        self._segment = None
        segment.close()
        self._folder.settle()
        if unsynced is not None:
            raise unsynced

    def _delete_if_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_retention_ns:
            delete_old(self._folder, self._settings, self._clock, self._segment, self._losses.append)
            self._next_retention_ns = now_ns + _RETENTION_CHECK_NS
