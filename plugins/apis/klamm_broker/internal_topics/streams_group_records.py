"""Streams groups (KIP-1071) as records of `__consumer_offsets`: `STREAMS_GROUPS`, for `sources.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from klamm.wire.coordinator_records import streams_group_current_member_assignment as current_assignment
from klamm.wire.coordinator_records import streams_group_member_metadata as member_metadata
from klamm.wire.coordinator_records import streams_group_metadata as group_metadata
from klamm.wire.coordinator_records import streams_group_target_assignment_member as target_member
from klamm.wire.coordinator_records import streams_group_target_assignment_metadata as target_metadata
from klamm.wire.coordinator_records import streams_group_topology as group_topology
from klamm_broker.groups.targeted_members import MemberState
from klamm_broker.internal_topics.record_source import MEMBER_STATES, Encodes, Row, as_hash, record_key, source


def _group(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, epoch, assignment_epoch, metadata_hash, validated_epoch, configs, topology = row
    metadata: Encodes | None = None
    target: Encodes | None = None
    if epoch is not None:
        metadata = group_metadata.StreamsGroupMetadataValue(
            epoch,
            as_hash(metadata_hash),
            validated_epoch,
            [group_metadata.LastAssignmentConfig(*each) for each in sorted(json.loads(configs).items())],
        )
        target = target_metadata.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch)
    yield record_key(group_metadata.RECORD_TYPE, group_metadata.StreamsGroupMetadataKey(group_id)), metadata
    target_key = target_metadata.StreamsGroupTargetAssignmentMetadataKey(group_id)
    yield record_key(target_metadata.RECORD_TYPE, target_key), target
    yield (
        record_key(group_topology.RECORD_TYPE, group_topology.StreamsGroupTopologyKey(group_id)),
        _topology(json.loads(topology)) if topology else None,
    )


def _topology(topology: dict[str, Any]) -> group_topology.StreamsGroupTopologyValue:
    return group_topology.StreamsGroupTopologyValue(
        topology["epoch"], [_subtopology(each) for each in topology["subtopologies"]]
    )


def _subtopology(row: dict[str, Any]) -> group_topology.Subtopology:
    return group_topology.Subtopology(
        subtopology_id=row["subtopology_id"],
        source_topics=row["source_topics"],
        state_changelog_topics=[_topic_info(each) for each in row["changelog_topics"]],
        repartition_sink_topics=row["repartition_sink_topics"],
        repartition_source_topics=[_topic_info(each) for each in row["repartition_source_topics"]],
        copartition_groups=[
            group_topology.CopartitionGroup(source_topics=sources, repartition_source_topics=others)
            for sources, others in row["copartition_groups"]
        ],
    )


def _topic_info(row: list[Any]) -> group_topology.TopicInfo:
    name, partitions, replication_factor, configs = row
    return group_topology.TopicInfo(
        name, partitions, replication_factor, [group_topology.TopicConfig(*each) for each in configs]
    )


def _member(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, member_id, text = row
    member = None if text is None else json.loads(text)
    key = member_metadata.StreamsGroupMemberMetadataKey(group_id, member_id)
    yield record_key(member_metadata.RECORD_TYPE, key), None if member is None else _metadata(member)
    current_key = current_assignment.StreamsGroupCurrentMemberAssignmentKey(group_id, member_id)
    yield record_key(current_assignment.RECORD_TYPE, current_key), None if member is None else _current(member)


def _metadata(member: dict[str, Any]) -> member_metadata.StreamsGroupMemberMetadataValue:
    endpoint = member["endpoint"]
    return member_metadata.StreamsGroupMemberMetadataValue(
        member["instance_id"],
        member["rack_id"],
        member["client_id"],
        member["client_host"],
        member["rebalance_timeout_ms"],
        member["topology_epoch"],
        member["process_id"],
        None if endpoint is None else member_metadata.Endpoint(*endpoint),
        [member_metadata.KeyValue(*each) for each in sorted(member["client_tags"].items())],
    )


def _current(member: dict[str, Any]) -> current_assignment.StreamsGroupCurrentMemberAssignmentValue:
    epochs = {(name, index): epoch for name, index, epoch in member["assignment_epochs"]}

    def tasks(role: Iterable[tuple[str, int]], *, has_epochs: bool) -> list[current_assignment.TaskIds]:
        return [
            current_assignment.TaskIds(
                name,
                indexes,
                [epochs.get((name, index), member["epoch"]) for index in indexes] if has_epochs else None,
            )
            for name, indexes in _by_subtopology(role)
        ]

    active, standby, warmup = member["assigned"]
    pending_active, pending_standby, pending_warmup = member["pending_revocation"]
    return current_assignment.StreamsGroupCurrentMemberAssignmentValue(
        member["epoch"],
        member["previous_epoch"],
        MEMBER_STATES[MemberState(member["state"])],
        tasks(active, has_epochs=True),
        tasks(standby, has_epochs=False),
        tasks(warmup, has_epochs=False),
        tasks(pending_active, has_epochs=True),
        tasks(pending_standby, has_epochs=False),
        tasks(pending_warmup, has_epochs=False),
    )


def _target(row: Row) -> Iterator[tuple[bytes, Encodes | None]]:
    group_id, member_id, text = row
    value = None
    if text is not None:
        roles = ([target_member.TaskIds(*each) for each in _by_subtopology(role)] for role in json.loads(text))
        value = target_member.StreamsGroupTargetAssignmentMemberValue(*roles)
    key = target_member.StreamsGroupTargetAssignmentMemberKey(group_id, member_id)
    yield record_key(target_member.RECORD_TYPE, key), value


def _by_subtopology(role: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for name, index in sorted(role):
        found.setdefault(name, []).append(index)
    return [*found.items()]


STREAMS_GROUPS: Final = (
    source(
        "streams_groups",
        ("group_id",),
        "streams_groups",
        "epoch, assignment_epoch, metadata_hash, validated_epoch, configs, topology",
        _group,
    ),
    source("streams_members", ("group_id", "member_id"), "streams_group_members", "member", _member),
    source("streams_targets", ("group_id", "member_id"), "streams_group_targets", "target", _target),
)
