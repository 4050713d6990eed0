"""`Group`: members, assignments, offsets and lag of a consumer group, for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from klamm.testing.outcomes import check_error, wait_until
from klamm.wire.entities import CONSUMER_PROTOCOL
from klamm.wire.errors import ErrorCode, KafkaError
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm.wire.struct_base import Message

Partition = tuple[str, int]

_LIST_VERSION: Final = 5
_DESCRIBE_VERSION: Final = 5
_DESCRIBE_CONSUMER_VERSION: Final = 0
_OFFSET_FETCH_VERSION: Final = 8
_PROTOCOL_VERSION: Final = struct.Struct(">h")


class AsksCluster(Protocol):
    """The methods of `Admin` that a group calls."""

    def call_group(self, name: str, request: Message, version: int) -> Any: ...

    def offset(self, topic: str, partition: int = 0, timestamp_ms: int = -1) -> int: ...


class GroupMember(NamedTuple):
    """A member that `Group.members` returns; `partitions` are its assigned partitions."""

    member_id: str
    client_id: str
    instance_id: str | None
    partitions: tuple[Partition, ...]


class Group:
    """A consumer group of this `name`, of the classic or the consumer protocol (KIP-848).

    `members` raises KafkaError for a group of another type, e.g. a share group.
    """

    def __init__(self, admin: AsksCluster, name: str) -> None:
        self._admin = admin
        self.name = name

    @property
    def state(self) -> str:
        """Return the group's state by Kafka's name, e.g. `Stable`; `Dead` if the group does not exist."""
        return self._listed()[0]

    def members(self) -> list[GroupMember]:
        """Return the members in the order of their client ids; none if the group does not exist."""
        _state, kind = self._listed()
        if kind == "consumer":
            members = self._consumer_members()
        elif kind == "classic":
            members = self._classic_members()
        elif not kind:
            members = []
        else:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.name} is a {kind} group")
        return sorted(members, key=lambda member: (member.client_id, member.member_id))

    def committed(self) -> dict[Partition, int]:
        """Return the committed offset of each partition that has one."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.name, topics=None)])
        (found,) = self._admin.call_group(self.name, request, _OFFSET_FETCH_VERSION).groups
        check_error(found.error_code, self.name)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in found.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    def lag(self) -> dict[Partition, int]:
        """Return, for each partition, the number of offsets from the committed one to the end of the log.

        For an assigned partition without a committed offset, the count starts at the beginning of the log.
        """
        committed = self.committed()
        assigned = {partition for member in self.members() for partition in member.partitions}
        found = {}
        for topic, index in sorted(committed.keys() | assigned):
            at = committed.get((topic, index))
            start = self._admin.offset(topic, index, -2) if at is None else at
            found[topic, index] = self._admin.offset(topic, index) - start
        return found

    def wait(
        self,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout_s: float = 30.0,
    ) -> Group:
        """Wait until the group has this state, this number of members, and this total lag; return the group.

        If `members` is above 0, the default of the state is `Stable`. Raises TimeoutError, which describes the group.
        """
        wanted = "Stable" if members and state is None else state

        def is_as_wanted() -> bool:
            return (
                (wanted is None or self.state == wanted)
                and (members is None or len(self.members()) == members)
                and (lag is None or _total(self.lag()) == lag)
            )

        try:
            wait_until(is_as_wanted, timeout_s=timeout_s)
        except TimeoutError:
            message = f"group {self.name}: not within {timeout_s:g} s; it {self._described()}"
            raise TimeoutError(message) from None
        return self

    def _described(self) -> str:
        return f"is {self.state}, has {len(self.members())} members and a lag of {_total(self.lag())}"

    def _listed(self) -> tuple[str, str]:
        for group in self._admin.call_group(self.name, ListGroupsRequest(), _LIST_VERSION).groups:
            if group.group_id == self.name:
                return group.group_state, group.group_type.lower()
        return "Dead", ""

    def _consumer_members(self) -> list[GroupMember]:
        request = ConsumerGroupDescribeRequest([self.name])
        (found,) = self._admin.call_group(self.name, request, _DESCRIBE_CONSUMER_VERSION).groups
        check_error(found.error_code, self.name)
        return [
            GroupMember(
                one.member_id,
                one.client_id,
                one.instance_id,
                _pairs({topic.topic_name: topic.partitions for topic in one.assignment.topic_partitions}),
            )
            for one in found.members
        ]

    def _classic_members(self) -> list[GroupMember]:
        request = DescribeGroupsRequest([self.name])
        (found,) = self._admin.call_group(self.name, request, _DESCRIBE_VERSION).groups
        check_error(found.error_code, self.name)
        return [
            GroupMember(
                one.member_id,
                one.client_id,
                one.group_instance_id,
                _assigned(one.member_assignment) if found.protocol_type == CONSUMER_PROTOCOL else (),
            )
            for one in found.members
        ]


def _assigned(data: bytes) -> tuple[Partition, ...]:
    if not data:
        return ()
    (version,) = _PROTOCOL_VERSION.unpack_from(data)
    assignment = ConsumerProtocolAssignment.decode(version, data, _PROTOCOL_VERSION.size)
    return _pairs({each.topic: each.partitions for each in assignment.assigned_partitions})


def _pairs(partitions: Mapping[str, Any]) -> tuple[Partition, ...]:
    return tuple(sorted((topic, index) for topic, indexes in partitions.items() for index in indexes))


def _total(lag: Mapping[Partition, int]) -> int:
    return sum(lag.values())
