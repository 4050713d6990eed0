"""`LogReader`: the reading half of a log. It does not take the log's lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.log.checkpoints import EpochEntry, LeaderEpochs
from klamm_broker.log.files import FileRegion
from klamm_broker.log.segment import LogSegment
from klamm_broker.log.timestamps import TimestampedOffset, first_record_since

_T = TypeVar("_T")

Tail: TypeAlias = tuple[int, LogSegment, int, int]
"""A consistent view of a log: end offset, active segment, size of that segment in bytes, last stable offset."""

_base_offset: Final = attrgetter("base_offset")


class LogRead(NamedTuple):
    """The result of a read. `records` start with the batch that contains the offset; they may end within a batch.

    If `records` is a `FileRegion`, the caller must close it. `aborted_transactions` are pairs of producer id and first
    offset; None unless only committed records were read.
    """

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileRegion | bytes
    aborted_transactions: list[tuple[int, int]] | None = None


class LogReader:
    """The reading half of a log. Other threads append to the log, roll it and shorten it meanwhile.

    The writer publishes `_tail` and `_segments` as whole tuples, after the bytes are in the file. Files that a reader
    has open stay readable after they are dropped; if a file was removed before the reader opened it, the reader looks
    up the segment again.
    """

    __slots__ = ("_segments", "_tail", "leader_epochs", "log_start_offset")

    def __init__(
        self, segments: tuple[LogSegment, ...], tail: Tail, log_start_offset: int, leader_epochs: LeaderEpochs
    ) -> None:
        self._segments = segments
        self._tail = tail
        self.log_start_offset = log_start_offset
        self.leader_epochs = leader_epochs

    @property
    def end_offset(self) -> int:
        """Return the offset of the next record."""
        return self._tail[0]

    @property
    def high_watermark(self) -> int:
        """The offset below which all replicas have the records. It is the end offset, because there is one replica."""
        return self._tail[0]

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which all transactions are decided."""
        return self._tail[3]

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes, without their indexes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments in order of their offsets. The last one is the active segment."""
        return self._segments

    def read(
        self, fetch_offset: int, max_bytes: int, *, min_one_message: bool = False, committed_only: bool = False
    ) -> LogRead:
        """Return at most `max_bytes` of records, from an offset on, out of one segment.

        If `min_one_message` is True, return at least the whole first batch, even if it is too large; else return no
        records if the first batch is too large. If `committed_only` is True, return no records after the last stable
        offset. Follows `UnifiedLog.read`, and `ReplicaManager.readFromLog` for batches that do not fit.

        Raises KafkaError: OFFSET_OUT_OF_RANGE before the start or after the end, KAFKA_STORAGE_ERROR.
        """
        try:
            return self._read(fetch_offset, max_bytes, min_one_message, committed_only)
        except OSError:
            return self._look_again(lambda: self._read(fetch_offset, max_bytes, min_one_message, committed_only))

    def _look_again(self, look: Callable[[], _T]) -> _T:
        """Call `look` again whenever retention or compaction has removed a file that it needs. Raises KafkaError."""
        while True:
            segments = self._segments
            try:
                return look()
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or segments is self._segments:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.strerror) from error

    def _read(self, fetch_offset: int, max_bytes: int, min_one_message: bool, committed_only: bool) -> LogRead:
        end_offset, segment, end, stable_offset = self._tail
        start_offset = self.log_start_offset
        if not start_offset <= fetch_offset <= end_offset:
            raise self._out_of_range(fetch_offset)
        limit_offset = stable_offset if committed_only else end_offset
        nothing = LogRead(end_offset, stable_offset, start_offset, b"", [] if committed_only else None)
        if fetch_offset >= limit_offset:
            return nothing
        position: int | None
        if fetch_offset >= segment.base_offset:
            position = segment.position_of(fetch_offset, end)
        else:
            segment, position, end = self._find(fetch_offset, segment, end)
        if limit_offset < end_offset:
            end = self._end_below(segment, limit_offset, end)
        if position is None or position >= end:
            return nothing
        size_bytes = end - position
        if size_bytes > max_bytes:
            first_bytes = segment.header_at(position).size_bytes
            if max_bytes < first_bytes and not min_one_message:
                return nothing
            size_bytes = max(max_bytes, first_bytes)
        records = segment.file.region(position, size_bytes)
        if segment.file.closed:
            try:
                self._require_current(segment)
            except FileNotFoundError:
                records.close()
                raise
        if not committed_only:
            return LogRead(end_offset, stable_offset, start_offset, records)
        beyond = segment.offset_beyond(position + size_bytes)
        limit_offset = limit_offset if beyond is None else min(limit_offset, beyond)
        aborted = self._aborted_transactions(segment, fetch_offset, limit_offset)
        return LogRead(end_offset, stable_offset, start_offset, records, aborted)

    def _require_current(self, segment: LogSegment) -> None:
        """Raise FileNotFoundError if the segment was removed or replaced during a look-up.

        The segment's files may have been deleted, and files of a later segment may have their names.
        """
        if segment.file.closed and segment not in self._segments:
            raise FileNotFoundError(f"{segment.file.path} was removed meanwhile")

    def _find(self, offset: int, active: LogSegment, active_size: int) -> tuple[LogSegment, int | None, int]:
        """Return the segment of the batch with an offset (or of the next batch), the batch's position, and the
        segment's end.
        """
        for segment in self._segments_from(offset):
            if segment is not active and segment.base_offset >= active.base_offset:
                # The active segment was removed or replaced meanwhile, so this segment may be longer than the known
                # end.
                break
            end = active_size if segment is active else segment.size_bytes
            position = segment.position_of(offset, end)
            if position is not None:
                return segment, position, end
            if segment is active:
                break
        return active, None, active_size

    def _segments_from(self, offset: int) -> tuple[LogSegment, ...]:
        segments = self._segments
        return segments[max(0, bisect_right(segments, offset, key=_base_offset) - 1) :]

    def _end_below(self, segment: LogSegment, limit_offset: int, end: int) -> int:
        """Return the position at which the batches below an offset end, in a segment that ends at `end`."""
        if limit_offset <= segment.base_offset:
            return 0
        position = segment.position_of(limit_offset, end)
        return end if position is None else position

    def _aborted_transactions(self, first: LogSegment, fetch_offset: int, limit_offset: int) -> list[tuple[int, int]]:
        """Return the aborted transactions that have records between two offsets."""
        found = []
        for segment in self._segments_from(first.base_offset):
            for aborted in segment.transaction_index.aborted():
                if aborted.last_offset >= fetch_offset and aborted.first_offset < limit_offset:
                    found.append((aborted.producer_id, aborted.first_offset))
                if aborted.last_stable_offset >= limit_offset:
                    return found
        return found

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """Return the first record that has this timestamp or a larger one. Raises KafkaError.

        Follows `UnifiedLog.fetchOffsetByTimestamp`.
        """
        return self._look_again(lambda: self._first_record_since(timestamp_ms))

    def _first_record_since(self, timestamp_ms: int) -> TimestampedOffset | None:
        for segment in self._segments:
            if segment.max_timestamp()[0] >= timestamp_ms:
                found = first_record_since(segment, timestamp_ms, self.log_start_offset)
                self._require_current(segment)
                if found is not None:
                    return found
        return None

    def max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record that has the largest timestamp; None if there is no record. Raises KafkaError.

        As in `UnifiedLog.fetchOffsetByTimestamp`, the record may lie before the log's start while its segment exists.
        If no record has a timestamp, it is the first record.
        """
        return self._look_again(self._max_timestamp)

    def _max_timestamp(self) -> TimestampedOffset | None:
        largest = [(segment.max_timestamp()[0], segment) for segment in self._segments]
        timestamp_ms, segment = max(largest, key=lambda each: each[0])
        found = first_record_since(segment, timestamp_ms, segment.base_offset)
        self._require_current(segment)
        return found

    def end_offset_for_epoch(self, leader_epoch: int) -> EpochEntry | None:
        """Return the largest epoch that is not above this one, and the end offset of that epoch's records; None if this
        epoch is later than all known ones.

        For an epoch whose records are all deleted, return the epoch with the log's start offset. Follows
        `UnifiedLog.endOffsetForEpoch`.
        """
        return self.leader_epochs.end_offset(leader_epoch, self.end_offset)

    def _out_of_range(self, fetch_offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {fetch_offset} is not in the range {self.log_start_offset} to {self.end_offset}.",
        )
