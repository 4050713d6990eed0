"""Retention of the spool: deletes the oldest segments by age and by size. `Spool` calls it on the writer's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from klamm.runtime import Clock
from klamm_spark.settings.audit import AuditSettings
from klamm_spark.spool.folder import SpoolError, SpoolFolder
from klamm_spark.spool.layout import SEAL_SUFFIX, UNREADABLE_SUFFIX, Seal, SegmentName, parse_name
from klamm_spark.spool.losses import Deleted
from klamm_spark.spool.segment import OpenSegment

log = logging.getLogger("klamm.audit")


def delete_old(
    folder: SpoolFolder,
    settings: AuditSettings,
    clock: Clock,
    open_segment: OpenSegment | None,
    report: Callable[[Deleted], None],
    more_bytes: int = 0,
) -> None:
    """Delete the segments that `retention_ms` and `retention_bytes` do not allow, oldest first, and report each of
    them.

    `more_bytes` is the size of the lines that will be written next. Unless `delete_unshipped` is set, deletion ends at
    the first segment that was not shipped, and unreadable files stay. Raises SpoolError; segments deleted before the
    error are reported.
    """
    reason, count = "", 0
    sizes = folder.sealed | folder.unreadable
    total_bytes = more_bytes + folder.size_bytes + (open_segment.size_bytes if open_segment is not None else 0)
    limit_us = clock.wall_us() - settings.retention_ms * 1000
    paths = sorted(sizes, key=lambda path: path.name)
    try:
        for index, path in enumerate(paths):
            try:
                stat = folder.files.stat(path)
            except FileNotFoundError:
                # Deleted by hand: not reported.
                total_bytes -= sizes[path]
                folder.forget(path)
                continue
            seal = folder.read_seal(path) if path in folder.sealed else None
            sealed_us = seal.sealed_time_us if seal is not None else stat.st_mtime_ns // 1000
            if settings.retention_ms >= 0 and sealed_us < limit_us:
                reason = "retention_ms"
            elif settings.on_limit == "delete_oldest" and 0 <= settings.retention_bytes < total_bytes:
                reason = "retention_bytes"
            else:
                break
            shipped = path in folder.sealed and folder.is_shipped(path)
            if not settings.delete_unshipped:
                if path in folder.unreadable:
                    continue
                if not shipped:
                    break
            folder.files.remove(path)
            total_bytes -= sizes[path]
            folder.forget(path)
            # A seal has no events, so its removal is not reported.
            if path.suffixes[0] != SEAL_SUFFIX:
                open_name = open_segment.name if open_segment is not None else None
                report(replace(_deleted(path, seal, paths[index + 1 :], open_name, reason), shipped=shipped))
            count += 1
    except OSError as error:
        raise SpoolError(f"{path}: {error.strerror or error}") from error
    finally:
        if count:
            log.warning("audit spool %s: %d segments or files put aside deleted (%s)", folder.path, count, reason)
    folder.settle()


def _deleted(path: Path, seal: Seal | None, later: list[Path], open_name: SegmentName | None, reason: str) -> Deleted:
    """Return the report of a deleted segment.

    If it has no seal, its end is derived from the name of the next segment of the same boot.
    """
    if seal is not None:
        return Deleted(seal.boot, seal.first_seq, seal.last_seq, seal.events, reason)
    name = parse_name(path.name)
    assert name is not None
    if path.suffix == UNREADABLE_SUFFIX:
        return Deleted(name.boot, name.first_seq, None, None, reason)
    after = next((each for other in later if (each := parse_name(other.name)) is not None and each > name), open_name)
    last_seq = after.first_seq - 1 if after is not None and after.boot == name.boot else None
    return Deleted(name.boot, name.first_seq, last_seq, None, reason)
