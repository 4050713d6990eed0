"""Views of a group for members and administrators. The caller holds the group's lock."""

from __future__ import annotations

from collections.abc import Sequence

from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.requests import DescribedGroup, DescribedMember, JoinedMember, JoinResult
from klamm_broker.groups.state import DEAD, PREPARING_REBALANCE, STABLE


def join_result(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinResult:
    """The answer to a join in the present generation; only the leader gets the list of members."""
    members: Sequence[JoinedMember] = ()
    if member_id == group.leader_id:
        members = joined_members(group)
    return JoinResult(
        member_id=member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
        skip_assignment=skip_assignment,
        members=members,
    )


def joined_members(group: ClassicGroup) -> list[JoinedMember]:
    """All members with their metadata of the chosen protocol. Not while a rebalance is being prepared."""
    if group.protocol_name is None or group.state in (PREPARING_REBALANCE, DEAD):
        raise RuntimeError(f"group {group.group_id!r} has no agreed protocol while it is {group.state.value}")
    return [
        JoinedMember(member.member_id, member.group_instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    ]


def describe(group: ClassicGroup) -> DescribedGroup:
    """The group for an administrator."""
    protocol_name = group.protocol_name if group.state is STABLE and group.protocol_name is not None else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=protocol_name or "",
        members=[
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol_name) if protocol_name is not None else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
    )
