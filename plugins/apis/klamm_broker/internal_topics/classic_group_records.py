"""Classic groups as records of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from klamm.wire.coordinator_records.group_metadata import (
    RECORD_TYPE,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from klamm_broker.internal_topics.record_source import (
    CoordinatorRecord,
    RecordSource,
    Row,
    TopicIds,
    record_key,
    record_value,
)

_VERSION: Final = 3


def _records(rows: Iterable[Row], _topic_id: TopicIds) -> Iterator[CoordinatorRecord]:
    for group_id, of_group in groupby(rows, itemgetter(0)):
        first, *others = of_group
        value = None
        _, generation_id, protocol_type, protocol_name, leader_id, state_timestamp_ms, *member = first
        if generation_id is not None:
            members = [] if member[0] is None else [MemberMetadata(*each[6:]) for each in (first, *others)]
            value = record_value(
                _VERSION,
                GroupMetadataValue(
                    protocol_type or "", generation_id, protocol_name, leader_id, state_timestamp_ms, members
                ),
            )
        yield CoordinatorRecord(group_id, record_key(RECORD_TYPE, GroupMetadataKey(group_id)), value)


CLASSIC_GROUPS: Final = RecordSource(
    "classic_groups",
    ("group_id",),
    ("groups",),
    "SELECT group_id, generation_id, protocol_type, protocol_name, leader_id, state_timestamp_ms, member_id,"
    " group_instance_id, client_id, client_host, rebalance_timeout_ms, session_timeout_ms, subscription, assignment"
    " FROM {changed} LEFT JOIN groups USING (group_id) LEFT JOIN group_members USING (group_id)"
    " ORDER BY group_id, position",
    _records,
)
