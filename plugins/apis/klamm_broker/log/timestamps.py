"""Search for records by timestamp, for `LogReader`."""

from __future__ import annotations

from typing import NamedTuple

from klamm.wire.records import decode_records
from klamm_broker.log.segment import LogSegment


class TimestampedOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch of its batch (-1 if there is none)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_record_since(segment: LogSegment, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
    """Return the first record of a segment, from `start_offset` on, with a timestamp of at least `timestamp_ms`."""
    end = segment.size_bytes
    first_possible = max(segment.base_offset + segment.time_index.lookup(timestamp_ms), start_offset)
    start = segment.position_of(first_possible, end)
    if start is None:
        return None
    for position, header in segment.headers(start, end):
        if header.max_timestamp_ms < timestamp_ms:
            continue
        for record in decode_records(segment.file.read(position, header.size_bytes)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return TimestampedOffset(record.timestamp_ms, record.offset, header.partition_leader_epoch)
    return None
