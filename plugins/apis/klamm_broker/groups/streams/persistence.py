"""`ROWS`: the rows of streams groups in the store, as `EpochRows`. It has no state, so any thread may use it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from klamm_broker.groups.epoch_group import Changes
from klamm_broker.groups.epoch_rows import EpochRows, JsonRows, common_json
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.requests import Endpoint
from klamm_broker.groups.streams.tasks import Task, Tasks
from klamm_broker.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from klamm_broker.groups.targeted_members import MemberState
from klamm_broker.storage.store import Statement

_PUT_GROUP: Final = (
    "INSERT INTO streams_groups (group_id, epoch, assignment_epoch, metadata_hash, validated_epoch, configs, topology)"
    " VALUES (?, ?, ?, ?, ?, ?, '') ON CONFLICT (group_id) DO UPDATE SET epoch = excluded.epoch,"
    " assignment_epoch = excluded.assignment_epoch, metadata_hash = excluded.metadata_hash,"
    " validated_epoch = excluded.validated_epoch, configs = excluded.configs"
)
_PUT_TOPOLOGY: Final = "UPDATE streams_groups SET topology = ? WHERE group_id = ?"


class _StreamsRows(EpochRows[StreamsGroup]):
    columns = "epoch, assignment_epoch, metadata_hash, validated_epoch, configs, topology"

    def _put_group(self, group: StreamsGroup, changes: Changes) -> list[Statement]:
        configs = json.dumps(group.configs)
        row = group.group_id, group.epoch, group.assignment_epoch, group.metadata_hash, group.validated_epoch, configs
        statements: list[Statement] = [(_PUT_GROUP, row)]
        if changes.topology and group.topology is not None:
            topology = _topology_text(group.topology, group.topology_owner)
            statements.append((_PUT_TOPOLOGY, (topology, group.group_id)))
        return statements

    def _restore(self, group: StreamsGroup, *values: Any) -> None:
        *common, group.validated_epoch, configs, topology = values
        super()._restore(group, *common)
        group.configs = json.loads(configs)
        if topology:
            described = json.loads(topology)
            group.initialize(_topology(described), described["owner"])


def _member_json(member: StreamsMember) -> dict[str, Any]:
    return {
        **common_json(member),
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "endpoint": member.endpoint,
        "client_tags": dict(member.client_tags),
        "assigned": _as_json(member.assigned),
        "pending_revocation": _as_json(member.pending_revocation),
        "assignment_epochs": [[*task, epoch] for task, epoch in sorted(member.assignment_epochs.items())],
    }


def _member(member_id: str, row: dict[str, Any]) -> StreamsMember:
    row["state"] = MemberState(row["state"])
    row["endpoint"] = None if row["endpoint"] is None else Endpoint(*row["endpoint"])
    for name in ("assigned", "pending_revocation"):
        row[name] = _tasks(row[name])
    row["assignment_epochs"] = {(name, index): epoch for name, index, epoch in row["assignment_epochs"]}
    return StreamsMember(member_id=member_id, **row)


def _as_json(tasks: Tasks) -> list[list[Task]]:
    return [sorted(role) for role in tasks]


def _tasks(roles: Iterable[Iterable[Iterable[Any]]]) -> Tasks:
    return Tasks(*(frozenset((name, index) for name, index in role) for role in roles))


def _topology_text(topology: Topology, owner: str) -> str:
    subtopologies = [each._asdict() for each in topology.subtopologies]
    return json.dumps({"epoch": topology.epoch, "owner": owner, "subtopologies": subtopologies})


def _topology(row: dict[str, Any]) -> Topology:
    return Topology(row["epoch"], tuple(_subtopology(each) for each in row["subtopologies"]))


def _subtopology(row: dict[str, Any]) -> Subtopology:
    return Subtopology(
        row["subtopology_id"],
        tuple(row["source_topics"]),
        tuple(row["repartition_sink_topics"]),
        tuple(_internal_topic(each) for each in row["repartition_source_topics"]),
        tuple(_internal_topic(each) for each in row["changelog_topics"]),
        tuple(CopartitionGroup(tuple(sources), tuple(others)) for sources, others in row["copartition_groups"]),
    )


def _internal_topic(row: list[Any]) -> InternalTopic:
    name, partitions, replication_factor, configs = row
    return InternalTopic(name, partitions, replication_factor, tuple((key, value) for key, value in configs))


ROWS: Final = _StreamsRows(
    StreamsGroup,
    JsonRows("streams", "member", _member_json, _member),
    JsonRows("streams", "target", _as_json, lambda _, roles: _tasks(roles)),
)
