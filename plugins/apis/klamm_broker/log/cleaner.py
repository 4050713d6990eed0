"""Compaction of a log's segments. Follows Kafka's `LogCleaner` and `Cleaner`.

A pass reads the dirty part of a log, which lies between the end of the last pass and the first segment that must not be
touched. Then it rewrites all segments before this segment. A new file has the suffix `.cleaned` until it is complete
and synced. Then it has the suffix `.swap` until the files that it replaces are renamed. `klamm_broker.log.recovery`
handles the files that a crash leaves.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm.wire.records import decode_records, read_header
from klamm_broker.log.batches import PlacedBatch, read_batches
from klamm_broker.log.compaction import BatchFilter, OffsetMap, TransactionFilter
from klamm_broker.log.config import LogConfig
from klamm_broker.log.context import LogContext
from klamm_broker.log.indexes import AbortedTransaction
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.log.segment import CLEANED_SUFFIX, MAX_RELATIVE_OFFSET, SWAP_SUFFIX, LogSegment

log = logging.getLogger("klamm.broker.log")

MAX_OFFSET_MAP_BYTES: Final = 128 * 1024 * 1024
_base_offset: Final = attrgetter("base_offset")


class DirtyRange(NamedTuple):
    """The part of a log that a pass would compact, and the ratio of its size to that of the log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    def is_due(self, config: LogConfig) -> bool:
        """Return True if the dirty part is large enough, or if a record has waited too long for compaction."""
        if not self.dirty_bytes:
            return False
        ratio = self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)
        return self.is_overdue or ratio > config.min_cleanable_dirty_ratio


def dirty_range(target: PartitionLog, checkpointed_offset: int, now_ms: int) -> DirtyRange:
    """Return the range that a pass would compact if the last pass ended at the given offset. Raises OSError.

    Only segments that end before the first uncleanable offset count as dirty, as in Kafka's `LogCleanerManager`. A pass
    also compacts the part of the next segment that lies before this offset.
    """
    config = target.config
    segments = target.segments
    first_dirty = max(min(checkpointed_offset, target.end_offset), target.log_start_offset)
    first_uncleanable = min(target.last_stable_offset, segments[-1].base_offset)
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for index, segment in enumerate(segments[:-1]):
        next_base = segments[index + 1].base_offset
        if next_base <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        if next_base > first_uncleanable:
            # This segment holds the last stable offset, and would be dirty again after the pass.
            break
        if config.min_compaction_lag_ms and segment.max_timestamp()[0] > now_ms - config.min_compaction_lag_ms:
            first_uncleanable = segment.base_offset
            break
        dirty_bytes += segment.size_bytes
        is_overdue = is_overdue or 0 <= segment.first_timestamp() < now_ms - config.max_compaction_lag_ms
    return DirtyRange(first_dirty, max(first_dirty, first_uncleanable), clean_bytes, dirty_bytes, is_overdue)


class CleaningStoppedError(Exception):
    """Raised if compaction was stopped. The log is unchanged and sound."""


class Cleaner:
    """Compacts one log after the other. One thread at a time may call it. `should_stop` is called before each
    batch. If it returns True, the pass ends.
    """

    def __init__(
        self,
        context: LogContext,
        max_offset_map_bytes: int = MAX_OFFSET_MAP_BYTES,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._context = context
        self._max_offset_map_bytes = max_offset_map_bytes
        self._should_stop = should_stop

    def clean(self, target: PartitionLog, dirty: DirtyRange, now_ms: int) -> int:
        """Compact a log. Return the offset up to which it is now clean.

        Raises OSError, CleaningStoppedError, and KafkaError for a segment that cannot be read or written. After an
        error the log is as sound as before.
        """
        offsets = self._build_map(target, dirty)
        end_offset = offsets.latest_offset + 1
        # Copied once, because retention may drop segments meanwhile.
        all_segments = target.segments
        segments = tuple(segment for segment in all_segments[:-1] if segment.base_offset < end_offset)
        cleaned_index: list[AbortedTransaction] = []
        batches = BatchFilter(
            offsets,
            TransactionFilter(_aborted_transactions(target, 0), cleaned_index.append),
            target.active_producers(),
            end_offset=end_offset,
            now_ms=now_ms,
            delete_retention_ms=target.config.delete_retention_ms,
        )
        for group in group_segments(segments, all_segments, target.config.segment_bytes):
            self._clean_group(target, group, batches, cleaned_index)
        return end_offset

    def _build_map(self, target: PartitionLog, dirty: DirtyRange) -> OffsetMap:
        offsets = OffsetMap(self._max_offset_map_bytes)
        offsets.latest_offset = dirty.first_dirty_offset - 1
        segments = target.segments
        first = max(0, bisect_right(segments, dirty.first_dirty_offset, key=_base_offset) - 1)
        dirty_segments = [
            segment for segment in segments[first:-1] if segment.base_offset < dirty.first_uncleanable_offset
        ]
        transactions = TransactionFilter(_aborted_transactions(target, dirty.first_dirty_offset))
        for segment in dirty_segments:
            start = segment.position_of(dirty.first_dirty_offset, segment.size_bytes)
            for _position, header, data in self._batches(segment, start or 0):
                if header.base_offset >= dirty.first_uncleanable_offset or offsets.is_full:
                    return offsets
                if not transactions.is_discardable(header, data) and not header.is_control:
                    for record in decode_records(data):
                        if record.key is not None and record.offset >= dirty.first_dirty_offset:
                            offsets.put(record.key, record.offset)
                offsets.latest_offset = header.last_offset
        return offsets

    def _clean_group(
        self,
        target: PartitionLog,
        group: tuple[LogSegment, ...],
        batches: BatchFilter,
        cleaned_index: list[AbortedTransaction],
    ) -> None:
        """Write a group of segments as one new segment, and replace them by it."""
        cleaned = LogSegment(
            target.directory,
            group[0].base_offset,
            self._context.operations,
            self._context.open_files,
            suffix=CLEANED_SUFFIX,
        )
        interval_bytes = target.config.index_interval_bytes
        try:
            # This pass must not append to files that a failed pass has left behind.
            self._context.operations.remove(cleaned.file.path)
            cleaned.file.create()
            for segment in group:
                for _position, header, data in self._batches(segment, 0):
                    kept = batches.keep(header, data)
                    if kept is not None:
                        position = cleaned.size_bytes
                        cleaned.file.write(kept, position)
                        cleaned.account(
                            position,
                            len(kept),
                            header.last_offset,
                            read_header(kept).max_timestamp_ms,
                            interval_bytes,
                        )
            while cleaned_index:
                cleaned.transaction_index.append(cleaned_index.pop(0))
            cleaned.seal()
            cleaned.sync()
            cleaned.move(target.directory, SWAP_SUFFIX)
            self._context.operations.sync_directory(target.directory)
        except (OSError, KafkaError, CleaningStoppedError):
            self._remove_files(cleaned)
            raise
        if not target.replace_segments(group, cleaned):
            self._remove_files(cleaned)

    def _batches(self, segment: LogSegment, start: int) -> Iterator[PlacedBatch]:
        """Yield the batches from a position on. Raises CleaningStoppedError, and KafkaError(CORRUPT_MESSAGE) at a bad
        batch.
        """
        position = start
        for batch in read_batches(segment.file, start, segment.size_bytes):
            if self._should_stop():
                raise CleaningStoppedError
            yield batch
            position = batch.position + batch.header.size_bytes
        if position != segment.size_bytes:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path} has a bad batch at byte {position}.")

    def _remove_files(self, segment: LogSegment) -> None:
        segment.close()
        for path in segment.paths():
            self._context.remove(path)


def group_segments(
    segments: Sequence[LogSegment], all_segments: Sequence[LogSegment], max_bytes: int
) -> Iterator[tuple[LogSegment, ...]]:
    """Yield groups of adjacent segments that fit together in one file, and whose offsets fit in its index."""
    last_offsets = {first.base_offset: after.base_offset - 1 for first, after in pairwise(all_segments)}
    group: list[LogSegment] = []
    size_bytes = 0
    for segment in segments:
        fits = (
            not group
            or (size_bytes + segment.size_bytes <= max_bytes)
            and (last_offsets[segment.base_offset] - group[0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if not fits:
            yield tuple(group)
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.size_bytes
    if group:
        yield tuple(group)


def _aborted_transactions(target: PartitionLog, start_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions of all segments that end at or after an offset. Their markers may lie after the
    compacted range.
    """
    return [
        aborted
        for segment in target.segments
        for aborted in segment.transaction_index.aborted()
        if aborted.last_offset >= start_offset
    ]
