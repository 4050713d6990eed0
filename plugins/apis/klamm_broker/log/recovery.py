"""`load_log`: opens the directory of a log, completes unfinished work, and after a crash checks and cuts the tail.

Follows Kafka's `LogLoader`. `SegmentedLog` calls it before other threads can find the log. The states that compaction
can leave behind:

    files found                  what happened                      what is done
    -------------------------    -------------------------------    -----------------------------------------
    N.log.deleted                dropped, but not removed yet       it is removed
    N.log.cleaned                a crash while it was written       it and the `.swap` files from N on are removed
    N.log.swap, M.log            complete, but not renamed yet      the segments in its range are removed, then it is
                                                                    renamed to N.log
"""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from klamm.wire.records import HEADER_BYTES, MAGIC, read_header
from klamm_broker.log.batches import read_batches, replay_batch
from klamm_broker.log.config import LogConfig
from klamm_broker.log.context import LogContext
from klamm_broker.log.files import LogFile
from klamm_broker.log.producer_state import ProducerStateManager
from klamm_broker.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
    aborted_transaction,
    offset_file_name,
)
from klamm_broker.log.snapshots import ProducerSnapshots

log = logging.getLogger("klamm.broker.log")

TEMPORARY_SUFFIX: Final = ".tmp"
_COPY_BYTES: Final = 1024 * 1024
_FILE: Final = re.compile(
    r"(?P<offset>\d{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<suffix>\.deleted|\.cleaned|\.swap|\.tmp)?"
)


class LoadedLog(NamedTuple):
    """The recovered log. It has at least one segment; the last segment is the active one."""

    segments: list[LogSegment]
    log_start_offset: int
    end_offset: int
    recovery_point: int
    producers: ProducerStateManager
    snapshots: ProducerSnapshots


def load_log(
    directory: Path,
    context: LogContext,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    is_clean: bool,
) -> LoadedLog:
    """Open the log of a directory, and check the segments that may be damaged. `is_clean` is True if the log was closed
    cleanly: then only segments without an index, and a last segment that is not whole, are checked.

    The offsets come from the checkpoints. Raises OSError.
    """
    files = _finish_unfinished(directory, _list_files(directory), context)
    segments = _open_segments(directory, context, files)
    snapshots = ProducerSnapshots(
        directory, context.operations, {offset for offset, kind in files if kind == SNAPSHOT_SUFFIX}
    )
    producers = ProducerStateManager(context.producers)
    if segments:
        doubtful = _first_doubtful_offset(segments, files, recovery_point, is_clean=is_clean)
        if doubtful is None and not segments[-1].is_whole():
            # The files are not those that were closed.
            doubtful = segments[-1].base_offset
    else:
        segments.append(new_segment(directory, log_start_offset, context))
        doubtful = None
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if doubtful is not None:
        recovery = _Recovery(segments, config, context, producers, snapshots)
        recovery.run(doubtful, log_start_offset)
    end_offset = segments[-1].next_offset()
    if end_offset < log_start_offset:
        log.warning(
            "%s ends at %d, before its start %d: it starts again, empty", directory, end_offset, log_start_offset
        )
        _set_aside(segments, context)
        segments = [new_segment(directory, log_start_offset, context)]
        context.operations.sync_directory(directory)
        end_offset = log_start_offset
    snapshots.remove_after(end_offset)
    snapshots.keep_only({segment.base_offset for segment in segments})
    if doubtful is None:
        start_offset = snapshots.load_latest(producers, log_start_offset, end_offset)
        replay(segments, producers, start_offset, end_offset)
    recovery_point = end_offset if is_clean else min(recovery_point, end_offset)
    return LoadedLog(segments, log_start_offset, end_offset, recovery_point, producers, snapshots)


def bytes_from(directory: Path, offset: int) -> int:
    """Return the number of bytes to check after a crash: the size of the segment that contains an offset and of all
    later segments. Raises OSError.
    """
    sizes: dict[int, int] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(LOG_SUFFIX) and _FILE.fullmatch(entry.name):
                sizes[int(entry.name.removesuffix(LOG_SUFFIX))] = entry.stat().st_size
    first = max((base_offset for base_offset in sizes if base_offset <= offset), default=0)
    return sum(size_bytes for base_offset, size_bytes in sizes.items() if base_offset >= first)


def new_segment(directory: Path, base_offset: int, context: LogContext) -> LogSegment:
    """Return an empty segment whose file exists. Raises OSError."""
    segment = LogSegment(directory, base_offset, context.operations, context.open_files)
    segment.file.create()
    return segment


def replay(segments: list[LogSegment], producers: ProducerStateManager, start_offset: int, end_offset: int) -> None:
    """Update the producers' state with the batches between two offsets. Raises OSError."""
    if start_offset >= end_offset:
        return
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= start_offset:
            continue
        position = segment.position_of(start_offset, segment.size_bytes)
        if position is None:
            continue
        for batch in segment.headers(position):
            if batch.header.base_offset >= end_offset:
                return
            replay_batch(producers, segment.file, batch.position, batch.header)


def _open_segments(directory: Path, context: LogContext, files: dict[tuple[int, str], int]) -> list[LogSegment]:
    segments = [
        LogSegment(directory, offset, context.operations, context.open_files, size_bytes=size_bytes, is_new=False)
        for (offset, kind), size_bytes in sorted(files.items())
        if kind == LOG_SUFFIX
    ]
    bases = {segment.base_offset for segment in segments}
    for offset, kind in files:
        if kind in SEGMENT_SUFFIXES and offset not in bases:
            context.remove(directory / offset_file_name(offset, kind))
    return segments


def _first_doubtful_offset(
    segments: list[LogSegment], files: dict[tuple[int, str], int], recovery_point: int, *, is_clean: bool
) -> int | None:
    """Return the offset from which segments must be checked; None if no check is needed."""
    without_index = (
        segment.base_offset
        for segment in segments
        if segment.size_bytes
        and not {(segment.base_offset, INDEX_SUFFIX), (segment.base_offset, TIME_INDEX_SUFFIX)} <= files.keys()
    )
    first_without_index = next(without_index, None)
    if is_clean:
        return first_without_index
    return recovery_point if first_without_index is None else min(recovery_point, first_without_index)


class _Recovery:
    """The check of the part of a log that a crash may have damaged."""

    def __init__(
        self,
        segments: list[LogSegment],
        config: LogConfig,
        context: LogContext,
        producers: ProducerStateManager,
        snapshots: ProducerSnapshots,
    ) -> None:
        self._segments = segments
        self._config = config
        self._context = context
        self._producers = producers
        self._snapshots = snapshots

    def run(self, start_offset: int, log_start_offset: int) -> None:
        """Check all batches from the segment that contains an offset on. Cut the log at the first bad batch, and
        rebuild the indexes.

        Afterwards the producers' state is that at the end of the log. Segments after a bad batch are set aside.
        """
        segments = self._segments
        first = max(0, bisect_right(segments, start_offset, key=lambda segment: segment.base_offset) - 1)
        base_offset = segments[first].base_offset
        snapshot_offset = self._snapshots.load_latest(self._producers, log_start_offset, base_offset)
        replay(segments[:first], self._producers, snapshot_offset, base_offset)
        for index in range(first, len(segments)):
            segment = segments[index]
            if self._check(segment):
                _set_aside(segments[index + 1 :], self._context)
                del segments[index + 1 :]
                # A clean shutdown syncs only records, and the next start does not look for cut segments.
                segment.sync()
                self._context.operations.sync_directory(segment.file.path.parent)
                return

    def _check(self, segment: LogSegment) -> int:
        """Rebuild the indexes from the sound batches, and cut the rest. Return the number of bytes that were cut."""
        size_bytes = segment.size_bytes
        interval_bytes = self._config.index_interval_bytes
        segment.start_over()
        for position, header, data in read_batches(segment.file, 0, size_bytes):
            if not 0 <= header.base_offset - segment.base_offset <= MAX_RELATIVE_OFFSET - header.last_offset_delta:
                break
            segment.account(position, len(data), header.last_offset, header.max_timestamp_ms, interval_bytes)
            completed = replay_batch(self._producers, segment.file, position, header)
            if completed is not None and completed.is_aborted:
                segment.transaction_index.append(aborted_transaction(completed))
        cut_bytes = size_bytes - segment.size_bytes
        if cut_bytes:
            self._cut(segment, size_bytes)
        segment.seal()
        return cut_bytes

    def _cut(self, segment: LogSegment, size_bytes: int) -> None:
        """Cut a segment after its last sound batch. Keep a copy of the rest, if it looks like more than one torn
        write.
        """
        cut_bytes = size_bytes - segment.size_bytes
        log.warning("%s: %d bytes are cut off its end", segment.file.path, cut_bytes)
        if not _is_torn_write(segment.file, segment.size_bytes, size_bytes):
            path = segment.file.path
            tail = path.with_name(f"{path.name}.{segment.size_bytes}")
            _copy(segment.file, segment.size_bytes, size_bytes, tail, self._context)
            log.error("%s has a bad batch at byte %d: the rest is kept as %s", path, segment.size_bytes, tail.name)
        segment.file.truncate(segment.size_bytes)


def _is_torn_write(file: LogFile, start: int, end: int) -> bool:
    """Return True if a part of a file is the beginning of one batch, or only zeros. A crash can leave both behind."""
    data = file.read(start, min(HEADER_BYTES, end - start))
    if len(data) < HEADER_BYTES:
        return True
    header = read_header(data)
    if header.magic == MAGIC and header.size_bytes >= end - start:
        return True
    position = start
    while position < end:
        data = file.read(position, min(_COPY_BYTES, end - position))
        if not data or data.count(0) != len(data):
            return not data
        position += len(data)
    return True


def _copy(file: LogFile, start: int, end: int, target: Path, context: LogContext) -> None:
    """Copy a part of a file, durably, to a file with the suffix `.set-aside`. Raises OSError."""
    operations = context.operations
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    descriptor = operations.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        for position in range(start, end, _COPY_BYTES):
            operations.write_all(descriptor, file.read(position, min(_COPY_BYTES, end - position)), position - start)
        operations.fsync(descriptor)
    finally:
        operations.close(descriptor)
    operations.rename(temporary, target)
    context.set_aside(target)
    operations.sync_directory(target.parent)


def _set_aside(segments: list[LogSegment], context: LogContext) -> None:
    """Rename the batch files of segments to the suffix `.set-aside`. Remove empty files and indexes. Raises OSError."""
    for segment in segments:
        segment.close()
        for path in segment.paths():
            if path != segment.file.path:
                context.remove(path)
            elif segment.size_bytes:
                log.error("%s: set aside as %s", path, context.set_aside(path).name)
            else:
                context.remove(path)


def _list_files(directory: Path) -> dict[tuple[int, str, str], int]:
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            match = _FILE.fullmatch(entry.name)
            if match is not None:
                found[int(match["offset"]), match["kind"], match["suffix"] or ""] = entry.stat().st_size
    return found


def _finish_unfinished(
    directory: Path, files: dict[tuple[int, str, str], int], context: LogContext
) -> dict[tuple[int, str], int]:
    """Finish interrupted compactions and deletions. Returns the files by offset and kind, with their sizes."""
    first_cleaned = min((offset for offset, _kind, suffix in files if suffix == CLEANED_SUFFIX), default=None)
    swapped: dict[tuple[int, str], int] = {}
    plain: dict[tuple[int, str], int] = {}
    for (offset, kind, suffix), size_bytes in files.items():
        is_dead_swap = suffix == SWAP_SUFFIX and first_cleaned is not None and offset >= first_cleaned
        if suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX) or is_dead_swap:
            context.remove(directory / (offset_file_name(offset, kind) + suffix))
        elif suffix == SWAP_SUFFIX:
            swapped[offset, kind] = size_bytes
        else:
            plain[offset, kind] = size_bytes
    for (offset, kind), size_bytes in swapped.items():
        if kind == LOG_SUFFIX:
            _remove_replaced(directory, context, offset, size_bytes, plain)
    for (offset, kind), size_bytes in swapped.items():
        name = offset_file_name(offset, kind)
        context.operations.rename(directory / (name + SWAP_SUFFIX), directory / name)
        plain[offset, kind] = size_bytes
    return plain


def _remove_replaced(
    directory: Path, context: LogContext, offset: int, size_bytes: int, plain: dict[tuple[int, str], int]
) -> None:
    """Remove the segments that a compacted segment was about to replace."""
    swap = LogSegment(
        directory,
        offset,
        context.operations,
        context.open_files,
        size_bytes=size_bytes,
        is_new=False,
        suffix=SWAP_SUFFIX,
    )
    end_offset = max(swap.next_offset(), offset + 1)
    swap.close()
    for other, kind in [key for key in plain if key[1] in SEGMENT_SUFFIXES and offset <= key[0] < end_offset]:
        context.remove(directory / offset_file_name(other, kind))
        del plain[other, kind]
