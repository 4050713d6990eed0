"""Committed offsets as records of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from klamm.wire.coordinator_records.offset_commit import RECORD_TYPE, OffsetCommitKey, OffsetCommitValue
from klamm_broker.internal_topics.record_source import (
    CoordinatorRecord,
    RecordSource,
    Row,
    TopicIds,
    record_key,
    record_value,
)

_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1


def _records(rows: Iterable[Row], topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
    for group_id, topic, partition, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms in rows:
        value = None
        if offset is not None:
            content = OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp_ms)
            if expire_timestamp_ms is None:
                content.topic_id = topic_id(topic)
                value = record_value(_VERSION, content)
            else:
                content.expire_timestamp = expire_timestamp_ms
                value = record_value(_VERSION_WITH_EXPIRY, content)
        key = record_key(RECORD_TYPE, OffsetCommitKey(group_id, topic, partition))
        yield CoordinatorRecord(group_id, key, value)


OFFSETS: Final = RecordSource(
    "offsets",
    ("group_id", "topic", "partition"),
    ("offsets",),
    "SELECT group_id, topic, partition, committed_offset, leader_epoch, metadata, commit_timestamp_ms,"
    " expire_timestamp_ms FROM {changed} LEFT JOIN offsets USING (group_id, topic, partition)",
    _records,
)
