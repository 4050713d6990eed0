"""The delivery state of share partitions, written to and read from the store.

There is a row for each partition, and one for each offset at which the state changes. A write contains only the changed
rows. The functions only make statements, which their callers submit; `load` reads the store at the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm_broker.share.record_state import RecordState
from klamm_broker.share.state_changes import StateBatch, StateUpdate
from klamm_broker.storage.store import Statement, Store

_PUT: Final = (
    "INSERT INTO share_partitions (group_id, topic_id, partition, start_offset, end_offset) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (group_id, topic_id, partition)"
    " DO UPDATE SET start_offset = excluded.start_offset, end_offset = excluded.end_offset"
)
_ID: Final = "(SELECT id FROM share_partitions WHERE group_id = ? AND topic_id = ? AND partition = ?)"
_DELETE_ROWS: Final = f"DELETE FROM share_state_batches WHERE share_partition = {_ID} AND first_offset BETWEEN ? AND ?"
_PUT_ROW: Final = (
    "INSERT INTO share_state_batches (share_partition, first_offset, delivery_state, delivery_count)"
    f" VALUES ({_ID}, ?, ?, ?)"
)
_LEAST_OFFSET: Final = -(2**63)
_GREATEST_OFFSET: Final = 2**63 - 1
_DELETE_GROUP: Final = "DELETE FROM share_partitions WHERE group_id = ?"
_DELETE_TOPIC: Final = "DELETE FROM share_partitions WHERE group_id = ? AND topic_id = ?"


DELETE_WITHOUT_GROUP: Final = (
    "DELETE FROM share_partitions WHERE group_id NOT IN (SELECT group_id FROM share_groups)",
    (),
)
"""Statements that delete the positions of groups that do not exist."""


class SharePartitionKey(NamedTuple):
    """One partition in one share group."""

    group_id: str
    topic_id: bytes
    partition: int


class SavedPartition(NamedTuple):
    """The stored state of a share partition."""

    key: SharePartitionKey
    start_offset: int
    batches: list[StateBatch]


def put_start(key: SharePartitionKey, start_offset: int) -> list[Statement]:
    """Return the statements that let a group begin at an offset, with no records in flight."""
    return [(_PUT, (*key, start_offset, start_offset - 1)), _delete_rows(key, _LEAST_OFFSET, _GREATEST_OFFSET)]


def put(key: SharePartitionKey, update: StateUpdate) -> list[Statement]:
    """Return the statements that write the changed rows."""
    gone = (_LEAST_OFFSET, _GREATEST_OFFSET if update.is_whole else update.start_offset - 1)
    return [
        (_PUT, (*key, update.start_offset, update.end_offset)),
        _delete_rows(key, *gone),
        *(_delete_rows(key, first, last) for first, last in update.replaced if not update.is_whole),
        *((_PUT_ROW, (*key, *row)) for row in update.rows),
    ]


def _delete_rows(key: SharePartitionKey, first: int, last: int) -> Statement:
    return _DELETE_ROWS, (*key, first, last)


def delete_group(group_id: str) -> Statement:
    """Return the statement that deletes the positions of a group."""
    return _DELETE_GROUP, (group_id,)


def delete_topic(group_id: str, topic_id: bytes) -> Statement:
    """Return the statement that deletes the positions of a group in a topic."""
    return _DELETE_TOPIC, (group_id, topic_id)


def load(store: Store) -> Iterator[SavedPartition]:
    """Load the partitions of all existing groups. Raises StoreError."""
    for number, group_id, topic_id, partition, start_offset, end_offset in store.read(
        "SELECT id, group_id, topic_id, partition, start_offset, end_offset FROM share_partitions"
        " WHERE group_id IN (SELECT group_id FROM share_groups)"
    ):
        rows = store.read(
            "SELECT first_offset, delivery_state, delivery_count FROM share_state_batches"
            " WHERE share_partition = ? ORDER BY first_offset",
            (number,),
        )
        lasts = [*(first - 1 for first, _state, _count in rows[1:]), end_offset]
        saved = [
            StateBatch(first, last, RecordState(state), count)
            for (first, state, count), last in zip(rows, lasts, strict=False)
        ]
        yield SavedPartition(SharePartitionKey(group_id, topic_id, partition), start_offset, saved)
