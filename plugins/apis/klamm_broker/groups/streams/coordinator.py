"""Heartbeats and departures of members of streams groups, and their description.

Follows the streams part of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError, clipped
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.configs.group_config_keys import STREAMS_HEARTBEAT_INTERVAL, STREAMS_RACK_AWARE_TAGS
from klamm_broker.groups.assignors.tasks import NAME as ASSIGNOR
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer.subscriptions import Topics
from klamm_broker.groups.epoch_coordinator import DescribedEpochGroup, EpochCoordinator, described
from klamm_broker.groups.epoch_group import STATIC_LEAVE_EPOCH
from klamm_broker.groups.group import Group
from klamm_broker.groups.group_registry import GroupRegistry
from klamm_broker.groups.streams.assignment import StreamsAssignment
from klamm_broker.groups.streams.configuration import Configuration
from klamm_broker.groups.streams.fencing import StreamsFencing
from klamm_broker.groups.streams.group import StreamsGroup, TaskOffsets
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.membership import (
    check_heartbeat,
    is_another,
    member_of,
    require_tasks,
    updated_member,
)
from klamm_broker.groups.streams.requests import (
    EndpointPartitions,
    Status,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
)
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.groups.streams.topology import Topology

log = logging.getLogger("klamm.broker.groups")

TASK_OFFSET_INTERVAL_MS: Final = 60_000
"""Interval at which a member reports the offsets of its changelogs. Like the next constant, it cannot be configured in
Kafka either.
"""
ACCEPTABLE_RECOVERY_LAG: Final = 10_000
"""Maximum lag, in records, of a copy of a task's state that may become active."""


class DescribedStreamsGroup(NamedTuple):
    """A streams group as an administrator sees it. `topology` is None if the group has none."""

    group: DescribedEpochGroup[StreamsMember, Tasks]
    topology: Topology | None
    configuration: Configuration
    offsets: Mapping[str, TaskOffsets]


class StreamsCoordinator(EpochCoordinator[StreamsGroup, StreamsHeartbeat, StreamsHeartbeatResult]):
    """The coordinator of streams groups. Threads and locks are those of `EpochCoordinator`."""

    group_class = StreamsGroup

    def __init__(
        self,
        settings: BrokerSettings,
        registry: GroupRegistry,
        assignment: StreamsAssignment,
        fencing: StreamsFencing,
        replace_empty: Callable[[ClassicGroup], StreamsGroup],
    ) -> None:
        """`replace_empty` puts a streams group in the place of an empty classic group."""
        super().__init__(settings, registry, fencing)
        self._assignment = assignment
        self._fencing = fencing
        self._replace_empty = replace_empty

    @property
    def rebalances(self) -> int:
        """Number of group epochs that were started in all groups together."""
        return self._assignment.rebalances

    def start(self, group: StreamsGroup) -> None:
        with group:
            known = group.metadata_hash, group.validated_epoch
            self._assignment.refresh(group)
            # The first heartbeat detects changes that were made while the server was down.
            group.metadata_hash, group.validated_epoch = known
            group.metadata_generation, group.has_new_topics, group.changes.group = -1, False, False
            for member in group.members.values():
                self._fencing.keep_alive(group, member.member_id)
                self._fencing.follow_state(group, member)

    # Heartbeat

    def _failed(self, code: ErrorCode, message: str | None) -> StreamsHeartbeatResult:
        return StreamsHeartbeatResult(code, message)

    def _checked(self, request: StreamsHeartbeat) -> StreamsHeartbeat:
        check_heartbeat(request)
        return request

    def _admit(self, group: StreamsGroup, request: StreamsHeartbeat) -> None:
        limit = self._settings.group_max_bytes
        first = updated_member(StreamsMember(member_id=request.member_id, owner=request.owner), request)
        group.put_within(first, limit, keep=False)
        if request.topology is not None:
            group.initialize_within(request.topology, request.owner, limit, keep=False)

    def _taken_over(self, group: Group, request: StreamsHeartbeat) -> StreamsGroup:
        if not isinstance(group, ClassicGroup) or not request.is_join or not group.is_empty:
            raise self._other_type(request.group_id)
        return self._replace_empty(group)

    def _beat(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        size = len(group.members)
        before, replaced = member_of(group, request, self._settings.group_streams_max_size)
        updated = updated_member(before, request)
        if request.topology is not None:
            self._take_topology(group, request.topology, request.owner)
        self._assignment.refresh(group)
        require_tasks(group.configuration, request.owned)
        group.put_within(updated, self._settings.group_max_bytes, replaced=replaced)
        if replaced is not None:
            self._fencing.forget(group, replaced.member_id)
        changed = len(group.members) != size or is_another(updated, before)
        if request.offsets is not None or request.end_offsets is not None:
            group.report_offsets(updated, request.offsets, request.end_offsets)
        self._fencing.keep_alive(group, updated.member_id)
        if not size:
            self._fencing.await_members(group)
        try:
            delayed = self._assignment.update(group, member_changed=changed)
            reconciled = self._assignment.reconcile(group, updated, request.owned)
        finally:
            if group.changes:
                group.refresh_state()
        if reconciled != updated:
            self._fencing.follow_state(group, reconciled)
        if request.shuts_down and group.shutdown_member is None:
            group.shutdown_member = reconciled.member_id
        return self._result(group, request, before, reconciled, delayed)

    def _take_topology(self, group: StreamsGroup, topology: Topology, owner: str) -> None:
        """Store the first topology of a group. Raises KafkaError(INVALID_REQUEST) for a different one."""
        if group.topology is None:
            group.initialize_within(topology, owner, self._settings.group_max_bytes)
        elif topology.epoch >= group.topology.epoch and topology != group.topology:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")

    def _result(
        self,
        group: StreamsGroup,
        request: StreamsHeartbeat,
        before: StreamsMember,
        member: StreamsMember,
        delayed: Status | None,
    ) -> StreamsHeartbeatResult:
        configs, group_id = self._fencing.configs, group.group_id
        has_changed = before.assigned != member.assigned
        if before.endpoint != member.endpoint or (member.endpoint is not None and has_changed):
            group.endpoint_epoch += 1
        endpoints = None
        if group.endpoint_epoch != request.endpoint_epoch:
            endpoints = endpoints_of(group, self._assignment.topics)
        return StreamsHeartbeatResult(
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=configs.number(group_id, STREAMS_HEARTBEAT_INTERVAL),
            task_offset_interval_ms=TASK_OFFSET_INTERVAL_MS,
            acceptable_recovery_lag=ACCEPTABLE_RECOVERY_LAG,
            statuses=self._statuses(group, request, member, delayed),
            assignment=member.assigned if request.is_join or has_changed else None,
            endpoint_epoch=group.endpoint_epoch,
            endpoints=endpoints,
        )

    def _statuses(
        self, group: StreamsGroup, request: StreamsHeartbeat, member: StreamsMember, delayed: Status | None
    ) -> list[Status]:
        found = []
        if group.topology is not None and member.topology_epoch < group.topology.epoch:
            found.append(
                Status(
                    StatusCode.STALE_TOPOLOGY,
                    f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
                    f" {group.topology.epoch}.",
                )
            )
        if delayed is not None:
            found.append(delayed)
        problem = group.configuration.problem
        if problem is not None:
            if group.configuration.missing:
                problem = problem._replace(detail=problem.detail + request.create_topics(group.configuration.missing))
            found.append(problem)
        if group.shutdown_member is not None:
            found.append(
                Status(
                    StatusCode.SHUTDOWN_APPLICATION,
                    f"Streams group member {group.shutdown_member} encountered a fatal error and requested a shutdown"
                    " for the entire application.",
                )
            )
        if request.knows_missing_tags:
            tags = self._fencing.configs.value(group.group_id, STREAMS_RACK_AWARE_TAGS)
            missing = [key for key in tags if key not in member.client_tags]
            if missing:
                found.append(
                    Status(
                        StatusCode.MISSING_CLIENT_TAGS,
                        f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]."
                        " Configure them via 'client.tag.<tagKey>' in your Streams config.",
                    )
                )
        return found

    # Leave

    def _leave(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        if request.shuts_down and group.shutdown_member is None:
            group.shutdown_member = request.member_id
        member = group.member(request.member_id, request.instance_id)
        if request.epoch == STATIC_LEAVE_EPOCH:
            log.info("group %s: static member %s leaves temporarily", group.log_name, clipped(member.member_id))
            # Its session timer keeps running: if the member does not return in time, its tasks are assigned to
            # others.
            epochs = dict.fromkeys(member.assigned.active, 0)
            group.put(replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation=NONE, assignment_epochs=epochs))
            group.refresh_state()
        else:
            log.info("group %s: member %s leaves", group.log_name, clipped(member.member_id))
            self._fencing.remove(group, member.member_id)
        return StreamsHeartbeatResult(member_id=request.member_id, epoch=request.epoch)

    # Describe

    def describe(self, group_id: str) -> DescribedStreamsGroup:
        """Return the description of a group. Raises KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.get(group_id)
        with group:
            return DescribedStreamsGroup(
                described(group, ASSIGNOR, group.target), group.topology, group.configuration, dict(group.offsets_of)
            )


def endpoints_of(group: StreamsGroup, topics: Topics) -> list[EndpointPartitions]:
    """Return the endpoint of each member that has one, with the partitions that the member serves."""
    if group.topology is None:
        return []
    inputs = {
        each.subtopology_id: {name: len(topic.partitions) for name in each.input_topics if (topic := topics.get(name))}
        for each in group.topology.subtopologies
    }
    return [
        EndpointPartitions(
            member.endpoint,
            _partitions(member.assigned.active, inputs),
            _partitions(member.assigned.standby | member.assigned.warmup, inputs),
        )
        for member in group.members.values()
        if member.endpoint is not None
    ]


def _partitions(tasks: Iterable[Task], inputs: Mapping[str, Mapping[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        for name, count in inputs.get(subtopology_id, {}).items():
            if partition < count:
                found.setdefault(name, []).append(partition)
    return dict(sorted(found.items()))
