"""The member of a streams group that sends a heartbeat: new, known, or in the place of a static member."""

from __future__ import annotations

import logging
from dataclasses import replace

from klamm import clipped
from klamm_broker.groups.epoch_coordinator import invalid
from klamm_broker.groups.epoch_group import STATIC_LEAVE_EPOCH
from klamm_broker.groups.streams.configuration import Configuration
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.requests import StreamsHeartbeat
from klamm_broker.groups.streams.tasks import Tasks
from klamm_broker.groups.streams.topology import check_names, check_topology
from klamm_broker.groups.targeted_members import in_place_of

log = logging.getLogger("klamm.broker.groups")


def check_heartbeat(request: StreamsHeartbeat) -> None:
    """Raise KafkaError for a request that is invalid for every group."""
    if request.topology is not None:
        check_names(request.topology)
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise invalid(f"{name} can't be empty.")
    if request.is_join:
        _check_join(request)
    elif request.epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif request.epoch < STATIC_LEAVE_EPOCH:
        raise invalid(f"MemberEpoch is {request.epoch}, but must be greater than or equal to {STATIC_LEAVE_EPOCH}.")
    if request.has_partial_tasks:
        raise invalid("If one task-type is non-null, all must be non-null.")
    if not request.is_join and request.topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if not request.has_partial_tasks:
        roles = (None, None, None) if request.owned is None else request.owned
        for name, tasks in zip(("ActiveTasks", "StandbyTasks", "WarmupTasks"), roles, strict=True):
            if tasks is None or tasks:
                raise invalid(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise invalid("Topology must be non-null when (re-)joining.")
    check_topology(request.topology)


def member_of(
    group: StreamsGroup, request: StreamsHeartbeat, max_size: int
) -> tuple[StreamsMember, StreamsMember | None]:
    """Return the member that sends the heartbeat, created if it joins, and the member it replaces. Raises KafkaError.

    The caller adds a created member to the group after all checks.
    """
    member_id, instance_id = request.member_id, request.instance_id
    if not request.is_join:
        member = group.member(member_id, instance_id)
        has_only_assigned = request.owned is not None and request.owned.within(member.assigned)
        group.check_epoch(member, request.epoch, has_only_assigned=has_only_assigned)
        return member, None
    if instance_id is not None and instance_id in group.static_members:
        old = group.members[group.static_members[instance_id]]
        if not old.is_away:
            raise group.unreleased(old, member_id)
        log.info("group %s: %s replaces %s", group.log_name, clipped(member_id), clipped(old.member_id))
        return in_place_of(old, member_id), old
    known = group.members.get(member_id)
    if known is not None:
        # The member joins again without tasks, so its former epoch does not matter.
        return known, None
    group.check_size(member_id, max_size)
    log.info("group %s: member %s joins the streams group", group.log_name, clipped(member_id))
    return StreamsMember(member_id=member_id, owner=request.owner), None


def updated_member(before: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    """Return the member, updated from its heartbeat."""
    is_unknown = request.endpoint is None and not request.is_join
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topology_epoch=before.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=before.process_id if request.process_id is None else request.process_id,
        endpoint=before.endpoint if is_unknown else request.endpoint,
        client_tags=before.client_tags if request.client_tags is None else dict(request.client_tags),
    )


def is_another(member: StreamsMember, before: StreamsMember) -> bool:
    """Return True if the member differs from `before` in a way that affects the assignment."""
    relevant = [(each.topology_epoch, each.rack_id, each.client_tags, each.process_id) for each in (member, before)]
    return relevant[0] != relevant[1]


def require_tasks(configuration: Configuration, owned: Tasks | None) -> None:
    """Raise KafkaError(INVALID_REQUEST) for tasks that are not part of the topology."""
    if owned is None or not configuration.is_ready:
        return
    for subtopology_id, partition in (task for role in owned for task in role):
        count = configuration.tasks.get(subtopology_id)
        if count is None:
            raise invalid(f"Subtopology {clipped(subtopology_id)} does not exist in the topology.")
        if not 0 <= partition < count:
            raise invalid(
                f"Task {partition} for subtopology {clipped(subtopology_id)} is invalid. Number of tasks for this"
                f" subtopology: {count}"
            )
