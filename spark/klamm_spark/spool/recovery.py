"""`Recovery`: brings the folder of a stream in order when `Spool.open` opens it. The caller is `AuditSink`, at its
start.

It seals the segments that a crash has left open. It renames files that cannot be read: they get the suffix
`.unreadable`, so that a person can repair them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from pathlib import Path
from typing import Final

from klamm_spark.spool.compression import decompress
from klamm_spark.spool.folder import SpoolFolder
from klamm_spark.spool.layout import (
    OPEN_SUFFIX,
    SEAL_SUFFIX,
    SHIPPED_SUFFIX,
    UNREADABLE_SUFFIX,
    Seal,
    SegmentName,
    folders_of,
    open_segments,
    parse_name,
    sealed_segments,
    segment_files,
)
from klamm_spark.spool.losses import Recovered
from klamm_spark.spool.segment import OpenSegment, count_whole_events

log = logging.getLogger("klamm.audit")

_PASSING: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of the process or the machine. The file itself may be good, and the next start may read it."""


class Recovery:
    """The recovery of one folder at one start. `put_aside` maps the files that it has renamed to the reasons."""

    def __init__(self, folder: SpoolFolder) -> None:
        self.put_aside: dict[Path, str] = {}
        self._folder = folder
        self._files = folder.files

    def run(self) -> list[Recovered]:
        """Bring the folder in order, and return the boots that ended in a crash. Raises OSError, SpoolError."""
        folder = self._folder
        for each in folders_of(folder.path):
            for leftover in each.glob("*.tmp"):
                self._files.remove(leftover)
        folder.names_changed()
        sealed = {path.name.partition(".")[0]: path for path in sealed_segments(folder.path)}
        left = {self._unsealed_part(path, sealed.get(path.stem)) for path in open_segments(folder.path)}
        opened = sorted(path for path in left if path is not None)
        folder.measure()
        newest = folder.newest = self._newest_seal({path.stem for path in opened})
        recovered = [boot for path in opened if (boot := self._recover_segment(path)) is not None]
        crashed = {boot.boot for boot in recovered}
        folder.measure()
        aside = [(name, path) for path in folder.unreadable if (name := parse_name(path.name)) is not None]
        # The first events of a boot report the losses of earlier boots. A boot that wrote nothing has not reported
        # them.
        last_written = max((boot.boot for boot in recovered if boot.last_seq is not None), default="")
        recovered[:0] = self._unreported(aside, crashed, max(last_written, newest.boot if newest else ""))
        known = crashed | {name.boot for name, _ in aside}
        if newest is not None and not newest.final and newest.boot not in known and newest.boot > last_written:
            recovered.insert(0, Recovered(newest.boot, newest.last_seq, 0))
        for mark in segment_files(folder.path, SHIPPED_SUFFIX):
            if not folder.has_segment(mark.stem):
                folder.delete_later(mark)
        folder.settle()
        return recovered

    def _read_or_put_aside(self, path: Path) -> bytes | None:
        try:
            return self._files.read(path)
        except OSError as error:
            if error.errno in _PASSING:
                raise
            self._put_aside(path, error.strerror or str(error))
            return None

    def _put_aside(self, path: Path, why: str) -> None:
        """Rename an unreadable file, so that it is kept for repair. Raises OSError if it cannot be renamed."""
        target = path.with_name(path.name + UNREADABLE_SUFFIX)
        log.error("audit spool: %s cannot be read (%s); it is put aside as %s", path, why, target.name)
        self._files.rename(path, target)
        self._folder.names_changed(path.parent)
        self.put_aside[target] = why

    def _unreported(
        self, aside: list[tuple[SegmentName, Path]], crashed: set[str], last_written: str
    ) -> list[Recovered]:
        """Return the boots with unreadable files whose loss no event reports yet.

        These are the files that this start has renamed, and files of an earlier start that wrote no event afterwards.
        If a boot is reported as crashed anyway, its unreadable seal means no further loss.
        """
        recovered: dict[str, Recovered] = {}
        for name, path in aside:
            if path not in self.put_aside and last_written > name.boot:
                continue
            last_seq = name.first_seq - 1
            if path.suffixes[0] == SEAL_SUFFIX:
                if name.boot in crashed:
                    continue
                last_seq = max(last_seq, self._last_seq_in(name))
            why = self.put_aside.get(path, "put aside by an earlier start")
            recovered.setdefault(
                name.boot, Recovered(name.boot, last_seq if last_seq >= 0 else None, 0, f"{path.name}: {why}")
            )
        return list(recovered.values())

    def _last_seq_in(self, name: SegmentName) -> int:
        """Return the number of the last event in the sealed segment `name`, as far as it can be read; -1 without such a
        segment.
        """
        for path in self._folder.sealed:
            if path.name.partition(".")[0] == name.stem:
                with contextlib.suppress(OSError, ValueError):
                    return count_whole_events(decompress(self._files.read(path), path.suffix), name).last_seq
                return name.first_seq - 1
        return -1

    def _unsealed_part(self, path: Path, sealed: Path | None) -> Path | None:
        """Return the open segment that still has to be sealed; None if a sealed copy has all of its lines.

        The copy may lack the last lines. This method writes the missing lines to a segment of their own, and returns
        that segment.
        """
        if sealed is None:
            return path
        data = self._read_or_put_aside(path)
        if data is None:
            return None
        seal = self._folder.read_seal(sealed)
        if seal is None:
            # Without a seal, the lines that the copy must have are unknown.
            self._files.remove(sealed)
            return path
        rest = None
        tail = data[seal.size_bytes :]
        if tail:
            rest = self._folder.path / f"{SegmentName(seal.boot, seal.last_seq + 1).stem}{OPEN_SUFFIX}"
            self._files.write_whole(rest, tail)
            self._files.sync_directory(self._folder.path)
        self._files.remove(path)
        return rest

    def _newest_seal(self, unsealed: set[str]) -> Seal | None:
        """Return the newest readable seal, which the chain continues. Delete older seals that have no segment."""
        newest: Seal | None = None
        for path in reversed(segment_files(self._folder.path, SEAL_SUFFIX)):
            if path.stem in unsealed:
                continue
            if newest is None:
                newest = self._read_newest_seal(path)
                if newest is not None:
                    self._folder.newest_folder = path.parent
            elif not self._folder.has_segment(path.stem):
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
        segment = OpenSegment(name, path, self._files, 0)
        try:
            torn_bytes = segment.recount(data)
            if torn_bytes and not segment.events and b"\n" in data:
                # More than one torn line.
                self._put_aside(path, "there is no event in it")
                return None
            if torn_bytes:
                log.warning("audit spool %s: a torn tail of %d bytes is cut off", path, torn_bytes)
                segment.truncate()
            segment.sync()
        finally:
            segment.close()
        if not segment.events:
            self._files.remove(path)
            last_seq = name.first_seq - 1 if name.first_seq else None
            return Recovered(name.boot, last_seq, torn_bytes)
        self._folder.seal(segment, clean=False, torn_bytes=torn_bytes)
        return Recovered(name.boot, segment.last_seq, torn_bytes)
