"""Share groups (KIP-932) as records of `__consumer_offsets`: `SHARE_GROUPS`, for `sources.py`.

The positions of the groups are records of `__share_group_state`, see `share_state_records.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from klamm.wire.coordinator_records import share_group_current_member_assignment as current_assignment
from klamm.wire.coordinator_records import share_group_member_metadata as member_metadata
from klamm.wire.coordinator_records import share_group_metadata as group_metadata
from klamm.wire.coordinator_records import share_group_target_assignment_member as target_member
from klamm.wire.coordinator_records import share_group_target_assignment_metadata as target_metadata
from klamm_broker.internal_topics.record_source import Encodes, Row, as_hash, by_topic, record_key, source

_STABLE: Final = 0


def _group(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, epoch, assignment_epoch, metadata_hash = row
    exists = epoch is not None
    yield (
        record_key(group_metadata.RECORD_TYPE, group_metadata.ShareGroupMetadataKey(group_id)),
        group_metadata.ShareGroupMetadataValue(epoch, as_hash(metadata_hash)) if exists else None,
    )
    yield (
        record_key(target_metadata.RECORD_TYPE, target_metadata.ShareGroupTargetAssignmentMetadataKey(group_id)),
        target_metadata.ShareGroupTargetAssignmentMetadataValue(assignment_epoch) if exists else None,
    )


def _member(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, member_id, text = row
    metadata: Encodes | None = None
    target: Encodes | None = None
    current: Encodes | None = None
    if text is not None:
        member = json.loads(text)
        metadata = member_metadata.ShareGroupMemberMetadataValue(
            member["rack_id"], member["client_id"], member["client_host"], member["topics"]
        )
        target = target_member.ShareGroupTargetAssignmentMemberValue(
            [target_member.TopicPartition(*each) for each in by_topic(member["target"])]
        )
        current = current_assignment.ShareGroupCurrentMemberAssignmentValue(
            member["epoch"],
            member["previous_epoch"],
            _STABLE,
            [current_assignment.TopicPartitions(*each) for each in by_topic(member["assigned"])],
        )
    key = member_metadata.ShareGroupMemberMetadataKey(group_id, member_id)
    yield record_key(member_metadata.RECORD_TYPE, key), metadata
    target_key = target_member.ShareGroupTargetAssignmentMemberKey(group_id, member_id)
    yield record_key(target_member.RECORD_TYPE, target_key), target
    current_key = current_assignment.ShareGroupCurrentMemberAssignmentKey(group_id, member_id)
    yield record_key(current_assignment.RECORD_TYPE, current_key), current


SHARE_GROUPS: Final = (
    source("share_groups", ("group_id",), "share_groups", "epoch, assignment_epoch, metadata_hash", _group),
    source("share_members", ("group_id", "member_id"), "share_group_members", "member", _member),
)
