"""The members of a consumer group, their targets, and which member owns which partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klamm import ErrorCode, KafkaError
from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from klamm_broker.groups.group import Group

if TYPE_CHECKING:
    from klamm_broker.storage.store import Statement


@dataclass(slots=True)
class Changes:
    """Changes to write: the group's row, and the member ids whose member or target was set or removed.

    `before` are statements that run first, such as those that delete the group that this one replaces.
    """

    group: bool = False
    members: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    before: list[Statement] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.group or bool(self.members) or bool(self.targets) or bool(self.before)

    def add(self, other: Changes) -> None:
        """Add older changes, which could not be written."""
        self.group = self.group or other.group
        self.members |= other.members
        self.targets |= other.targets
        self.before = [*other.before, *self.before]


class ConsumerMembership(Group):
    """The members of a consumer group and the partitions they own; `ConsumerGroup` adds epochs and state.

    `target`    what each member is to have.
    `patterns`  how many members subscribe to each regular expression.
    `members_bytes`  about what the members take, but their assignments.
    `subscriptions`  how many members subscribe to the same: names of topics and an expression.
    `changes`   what is to be written.
    """

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.changes = Changes()
        self.patterns: Counter[str] = Counter()
        self.members_bytes = 0
        self.subscriptions: Counter[tuple[frozenset[str], str]] = Counter()
        self._owned: Counter[tuple[bytes, int]] = Counter()

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        if old == member:
            return
        if old is not None:
            self._disown(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.members_bytes += member.size_bytes
        self.count_members(member.owner, member.charge_bytes)
        self.subscriptions[member.topics, member.regex] += 1
        if member.regex:
            self.patterns[member.regex] += 1
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                self._owned.update((topic, index) for index in indexes)
        self.changes.members.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member; its partitions are free."""
        member = self.members.pop(member_id)
        self._disown(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self.changes.members.add(member_id)
        self.set_target(member_id, None)

    def put_within(self, member: ConsumerMember, max_bytes: int, *, keep: bool = True) -> None:
        """Add or replace a member, or only see if there is room.

        Raises KafkaError(GROUP_MAX_SIZE_REACHED) if it is to take more than it does, and more than is left.
        """
        known = self.members.get(member.member_id)
        if known == member:
            return
        more_bytes = member.size_bytes - (0 if known is None else known.size_bytes)
        if more_bytes > 0 and self.members_bytes + more_bytes > max_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The names and subscriptions of the group's members may have {max_bytes} bytes (group.max.bytes).",
            )
        grows_by = member.charge_bytes if known is None else member.grows_by_bytes(known)
        with self.room_for(member.owner, grows_by, in_use=known is not None) as has_room:
            if not has_room:
                raise self.book.ledgers.members.refusal()
            if keep:
                self.put(member)

    def _disown(self, member: ConsumerMember) -> None:
        self.members_bytes -= member.size_bytes
        self.count_members(member.owner, -member.charge_bytes)
        subscription = member.topics, member.regex
        self.subscriptions[subscription] -= 1
        if not self.subscriptions[subscription]:
            del self.subscriptions[subscription]
        if member.regex:
            self.patterns[member.regex] -= 1
            if not self.patterns[member.regex]:
                del self.patterns[member.regex]
        owned = self._owned
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                for index in indexes:
                    owned[topic, index] -= 1
                    if not owned[topic, index]:
                        del owned[topic, index]

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member owns the partition or has still to revoke it."""
        return (topic_id, partition) in self._owned

    def member(self, member_id: str, instance_id: str | None = None) -> ConsumerMember:
        """The member. Raises KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has the instance id."""
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            if owner != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}.",
                )
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def target_of(self, member_id: str) -> Partitions:
        """The member's target assignment."""
        return self.target.get(member_id, NO_PARTITIONS)

    def set_target(self, member_id: str, target: Partitions | None) -> None:
        """Replace a member's target; None forgets it."""
        if self.target.get(member_id) == target:
            return
        if target is None:
            del self.target[member_id]
        else:
            self.target[member_id] = target
        self.changes.targets.add(member_id)

    @property
    def preferred_assignor(self) -> str | None:
        """The server assignor that most members ask for; None if no member names one."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(wanted, key=lambda name: wanted[name], default=None)

    # Members that speak the classic protocol

    def supports_classic_protocols(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        """Whether a classic member with these protocols could join."""
        if protocol_type != consumer_protocol.PROTOCOL_TYPE:
            return False
        others = [member.classic for member in self.members.values() if member.classic is not None]
        known = Counter(name for classic in others for name, _ in classic.protocols)
        return any(known[name] == len(others) for name in protocols)

    def awaits_release(self, member: ConsumerMember) -> bool:
        """Whether other members still own some of the member's target partitions."""
        return any(
            self.is_owned(topic, index)
            for topic, indexes in self.target_of(member.member_id).items()
            for index in indexes - member.assigned.get(topic, frozenset())
        )
