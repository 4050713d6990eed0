"""The delivery state of share partitions in the store, and back: one row each, written as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_broker.share.partition import StateBatch
from klamm_broker.share.record_state import RecordState

if TYPE_CHECKING:
    from klamm_broker.storage.store import Statement, Store

_PUT: Final = (
    "INSERT OR REPLACE INTO share_partitions (group_id, topic_id, partition, start_offset, batches)"
    " VALUES (?, ?, ?, ?, ?)"
)
_DELETE_GROUP: Final = "DELETE FROM share_partitions WHERE group_id = ?"
_DELETE_TOPIC: Final = "DELETE FROM share_partitions WHERE group_id = ? AND topic_id = ?"


DELETE_WITHOUT_GROUP: Final = (
    "DELETE FROM share_partitions WHERE group_id NOT IN (SELECT group_id FROM share_groups)",
    (),
)
"""Forget what groups have read that do not exist."""


class SharePartitionKey(NamedTuple):
    """One partition in one share group."""

    group_id: str
    topic_id: bytes
    partition: int


class SavedPartition(NamedTuple):
    """What the store has of one."""

    key: SharePartitionKey
    start_offset: int
    batches: list[StateBatch]


def put(key: SharePartitionKey, start_offset: int, batches: Sequence[StateBatch]) -> Statement:
    """Write one."""
    return _PUT, (*key, start_offset, json.dumps(batches))


def delete_group(group_id: str) -> Statement:
    """Forget what a group has read."""
    return _DELETE_GROUP, (group_id,)


def delete_topic(group_id: str, topic_id: bytes) -> Statement:
    """Forget what a group has read of a topic."""
    return _DELETE_TOPIC, (group_id, topic_id)


def load(store: Store) -> Iterator[SavedPartition]:
    """Those of all groups that exist. Raises StoreError."""
    for group_id, topic_id, partition, start_offset, batches in store.read(
        "SELECT group_id, topic_id, partition, start_offset, batches FROM share_partitions"
        " WHERE group_id IN (SELECT group_id FROM share_groups)"
    ):
        saved = [
            StateBatch(first, last, RecordState(state), count) for first, last, state, count in json.loads(batches)
        ]
        yield SavedPartition(SharePartitionKey(group_id, topic_id, partition), start_offset, saved)
