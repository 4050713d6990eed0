"""Deletion of a log's segments by age and by size. It follows Kafka's `UnifiedLog.deleteOldSegments`. `SegmentedLog`
calls it under the log's lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm_broker.log.config import LogConfig
from klamm_broker.log.segment import LogSegment


def count_deletable(segments: Sequence[LogSegment], log_start_offset: int, config: LogConfig, now_ms: int) -> int:
    """Return the number of segments to delete, beginning with the first. It may be the number of all segments.

    Segments that lie wholly before the log's start are deleted under any cleanup policy. Raises OSError.
    """
    count = _before_start(segments, log_start_offset)
    if not config.delete:
        return count
    return max(count, _beyond_size(segments, config), _too_old(segments, config, now_ms))


def _before_start(segments: Sequence[LogSegment], log_start_offset: int) -> int:
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    return count


def _beyond_size(segments: Sequence[LogSegment], config: LogConfig) -> int:
    if config.retention_bytes < 0:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment in _with_data(segments):
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0:
            break
        count += 1
    return count


def _too_old(segments: Sequence[LogSegment], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    count = 0
    for segment in _with_data(segments):
        timestamp_ms = segment.max_timestamp()[0]
        if now_ms - (timestamp_ms if timestamp_ms >= 0 else segment.file.modified_ms()) <= config.retention_ms:
            break
        count += 1
    return count


def _with_data(segments: Sequence[LogSegment]) -> Sequence[LogSegment]:
    """Return all segments, except the active one if it has no data yet."""
    return segments if segments[-1].size_bytes else segments[:-1]
