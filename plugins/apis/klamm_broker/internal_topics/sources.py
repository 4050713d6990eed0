"""The sources of the records of each internal topic. Those of classic groups and committed offsets are defined here.

This module is imported only if an internal topic exists, because it imports many modules of messages. Its functions
keep no state; the thread that writes the topic calls them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from klamm.wire.coordinator_records.group_metadata import RECORD_TYPE as GROUP
from klamm.wire.coordinator_records.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from klamm.wire.coordinator_records.offset_commit import RECORD_TYPE as OFFSET
from klamm.wire.coordinator_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from klamm_broker.internal_topics.consumer_group_records import CONSUMER_GROUPS
from klamm_broker.internal_topics.record_source import (
    CoordinatorRecord,
    RecordSource,
    Row,
    TopicIds,
    record_key,
    record_value,
)
from klamm_broker.internal_topics.share_group_records import SHARE_GROUPS
from klamm_broker.internal_topics.share_state_records import SHARE_STATE
from klamm_broker.internal_topics.streams_group_records import STREAMS_GROUPS
from klamm_broker.internal_topics.transaction_records import TRANSACTIONS
from klamm_broker.topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

_GROUP_VERSION: Final = 3
_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_EXPIRY: Final = 1


def _classic_groups(rows: Iterable[Row], _topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
    for group_id, of_group in groupby(rows, itemgetter(0)):
        first, *others = of_group
        value = None
        _, generation_id, protocol_type, protocol_name, leader_id, state_timestamp_ms, *member = first
        if generation_id is not None:
            members = [] if member[0] is None else [MemberMetadata(*each[6:]) for each in (first, *others)]
            value = record_value(
                _GROUP_VERSION,
                GroupMetadataValue(
                    protocol_type or "", generation_id, protocol_name, leader_id, state_timestamp_ms, members
                ),
            )
        yield CoordinatorRecord(group_id, record_key(GROUP, GroupMetadataKey(group_id)), value)


CLASSIC_GROUPS: Final = RecordSource(
    "classic_groups",
    ("group_id",),
    ("groups",),
    "SELECT group_id, generation_id, protocol_type, protocol_name, leader_id, state_timestamp_ms, member_id,"
    " group_instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms, subscription, assignment"
    " FROM {changed} LEFT JOIN groups USING (group_id) LEFT JOIN group_members USING (group_id)"
    " ORDER BY group_id, position",
    _classic_groups,
)


def _offsets(rows: Iterable[Row], topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
    for group_id, topic, partition, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms in rows:
        value = None
        if offset is not None:
            content = OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp_ms)
            if expire_timestamp_ms is None:
                content.topic_id = topic_id(topic)
                value = record_value(_OFFSET_VERSION, content)
            else:
                content.expire_timestamp = expire_timestamp_ms
                value = record_value(_OFFSET_VERSION_WITH_EXPIRY, content)
        key = record_key(OFFSET, OffsetCommitKey(group_id, topic, partition))
        yield CoordinatorRecord(group_id, key, value)


OFFSETS: Final = RecordSource(
    "offsets",
    ("group_id", "topic", "partition"),
    ("offsets",),
    "SELECT group_id, topic, partition, committed_offset, leader_epoch, metadata, commit_timestamp_ms,"
    " expire_timestamp_ms FROM {changed} LEFT JOIN offsets USING (group_id, topic, partition)",
    _offsets,
)

SOURCES: Final[Mapping[str, Sequence[RecordSource]]] = {
    CONSUMER_OFFSETS: (OFFSETS, CLASSIC_GROUPS, *CONSUMER_GROUPS, *SHARE_GROUPS, *STREAMS_GROUPS),
    TRANSACTION_STATE: (TRANSACTIONS,),
    SHARE_GROUP_STATE: (SHARE_STATE,),
}
