"""Consumer groups (KIP-848) as records of `__consumer_offsets`: `CONSUMER_GROUPS`, for `sources.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from klamm.wire.coordinator_records import consumer_group_current_member_assignment as current_assignment
from klamm.wire.coordinator_records import consumer_group_member_metadata as member_metadata
from klamm.wire.coordinator_records import consumer_group_metadata as group_metadata
from klamm.wire.coordinator_records import consumer_group_target_assignment_member as target_member
from klamm.wire.coordinator_records import consumer_group_target_assignment_metadata as target_metadata
from klamm_broker.groups.targeted_members import MemberState
from klamm_broker.internal_topics.record_source import (
    MEMBER_STATES,
    Encodes,
    Row,
    as_hash,
    by_topic,
    record_key,
    source,
)


def _group(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, epoch, assignment_epoch, metadata_hash = row
    key = record_key(group_metadata.RECORD_TYPE, group_metadata.ConsumerGroupMetadataKey(group_id))
    target_key = target_metadata.ConsumerGroupTargetAssignmentMetadataKey(group_id)
    exists = epoch is not None
    yield key, group_metadata.ConsumerGroupMetadataValue(epoch, as_hash(metadata_hash)) if exists else None
    yield (
        record_key(target_metadata.RECORD_TYPE, target_key),
        target_metadata.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch) if exists else None,
    )


def _member(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, member_id, text = row
    member = None if text is None else json.loads(text)
    key = member_metadata.ConsumerGroupMemberMetadataKey(group_id, member_id)
    yield record_key(member_metadata.RECORD_TYPE, key), None if member is None else _metadata(member)
    assignment_key = current_assignment.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id)
    yield (
        record_key(current_assignment.RECORD_TYPE, assignment_key),
        None if member is None else _current_assignment(member),
    )


def _metadata(member: dict[str, Any]) -> member_metadata.ConsumerGroupMemberMetadataValue:
    classic = member["classic"]
    return member_metadata.ConsumerGroupMemberMetadataValue(
        member["instance_id"],
        member["rack_id"],
        member["client_id"],
        member["client_host"],
        member["topics"],
        member["regex"],
        member["rebalance_timeout_ms"],
        member["assignor"],
        None
        if classic is None
        else member_metadata.ClassicMemberMetadata(
            classic["session_timeout_ms"],
            [member_metadata.ClassicProtocol(name, bytes.fromhex(text)) for name, text in classic["protocols"]],
        ),
    )


def _current_assignment(member: dict[str, Any]) -> current_assignment.ConsumerGroupCurrentMemberAssignmentValue:
    # Rows of earlier builds have no value for this field.
    epochs = {bytes.fromhex(topic): dict(each) for topic, each in member.get("assignment_epochs", {}).items()}

    def partitions(name: str) -> list[current_assignment.TopicPartitions]:
        return [
            current_assignment.TopicPartitions(
                topic_id, indexes, [epochs.get(topic_id, {}).get(index, member["epoch"]) for index in indexes]
            )
            for topic_id, indexes in by_topic(member[name])
        ]

    return current_assignment.ConsumerGroupCurrentMemberAssignmentValue(
        member["epoch"],
        member["previous_epoch"],
        MEMBER_STATES[MemberState(member["state"])],
        partitions("assigned"),
        partitions("pending_revocation"),
    )


def _target(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, member_id, text = row
    key = target_member.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    yield (
        record_key(target_member.RECORD_TYPE, key),
        None
        if text is None
        else target_member.ConsumerGroupTargetAssignmentMemberValue(
            [target_member.TopicPartition(*each) for each in by_topic(json.loads(text))]
        ),
    )


CONSUMER_GROUPS: Final = (
    source("consumer_groups", ("group_id",), "consumer_groups", "epoch, assignment_epoch, metadata_hash", _group),
    source("consumer_members", ("group_id", "member_id"), "consumer_group_members", "member", _member),
    source("consumer_targets", ("group_id", "member_id"), "consumer_group_targets", "target", _target),
)
