"""The state of share partitions as records of `__share_group_state`. Each record is a snapshot; there are no
updates.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from klamm.wire.coordinator_records.share_snapshot import (
    RECORD_TYPE,
    ShareSnapshotKey,
    ShareSnapshotValue,
    StateBatch,
)
from klamm_broker.internal_topics.record_source import (
    CoordinatorRecord,
    RecordSource,
    Row,
    TopicIds,
    record_key,
    record_value,
)
from klamm_broker.share.record_state import ACKNOWLEDGED, ARCHIVED

_VERSION: Final = 0
_COMPLETE: Final = (ACKNOWLEDGED, ARCHIVED)
_of_partition: Final = itemgetter(0, 1, 2)


def _owner(row: Row) -> str:
    """Return the key by which Kafka chooses a share partition's coordinator."""
    group_id, topic_id, partition = row[:3]
    return f"{group_id}:{base64.urlsafe_b64encode(topic_id).decode().rstrip('=')}:{partition}"


def _records(rows: Iterable[Row], _topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
    for key, of_partition in groupby(rows, _of_partition):
        found = [*of_partition]
        value = None if found[0][3] is None else record_value(_VERSION, _snapshot(found))
        yield CoordinatorRecord(_owner(key), record_key(RECORD_TYPE, ShareSnapshotKey(*key)), value)


def _snapshot(rows: list[Row]) -> ShareSnapshotValue:
    start_offset, end_offset = rows[0][3:5]
    states = [] if rows[0][5] is None else [row[5:] for row in rows]
    lasts = [*(first - 1 for first, _state, _count in states[1:]), end_offset]
    batches = [
        # The row in which the partition begins may start at an earlier offset.
        StateBatch(max(first, start_offset), last, state, count)
        for (first, state, count), last in zip(states, lasts, strict=False)
        if last >= start_offset
    ]
    complete = sum(each.last_offset - each.first_offset + 1 for each in batches if each.delivery_state in _COMPLETE)
    return ShareSnapshotValue(start_offset=start_offset, delivery_complete_count=complete, state_batches=batches)


SHARE_STATE: Final = RecordSource(
    "share_state",
    ("group_id", "topic_id", "partition"),
    ("share_partitions",),
    "SELECT group_id, topic_id, partition, start_offset, end_offset, first_offset, delivery_state, delivery_count"
    " FROM {changed} LEFT JOIN share_partitions USING (group_id, topic_id, partition)"
    " LEFT JOIN share_state_batches ON share_partition = share_partitions.id"
    " ORDER BY group_id, topic_id, partition, first_offset",
    _records,
    owner_keys=3,
    owner=_owner,
)
