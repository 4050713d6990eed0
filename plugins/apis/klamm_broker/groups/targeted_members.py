"""`TargetedMembers`: members of a group whose target assignments the server computes."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.group import Group


class TargetedMember(Protocol):
    """A member as the group counts it: `size_bytes` of its group, `charge_bytes` of its owner's share."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...

    @property
    def owner(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def charge_bytes(self) -> int: ...


class TargetedChanges(Protocol):
    """The ids of members whose row, or whose target, is to be written or deleted."""

    members: set[str]
    targets: set[str]


MemberT = TypeVar("MemberT", bound=TargetedMember)
TargetT = TypeVar("TargetT")


class TargetedMembers(Group, Generic[MemberT, TargetT]):
    """The members of a group, those that are static, and what each is to have.

    `target`         what each member is to have.
    `members_bytes`  about what the members take, but their assignments.
    `changes`        what is to be written.
    `counted_names`  what of a member counts, as errors say it.
    """

    changes: TargetedChanges
    counted_names: ClassVar[str]

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.members: dict[str, MemberT] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, TargetT] = {}
        self.members_bytes = 0

    @abstractmethod
    def put(self, member: MemberT) -> None:
        """Add or replace a member."""

    @abstractmethod
    def grows_by_bytes(self, member: MemberT, known: MemberT) -> int:
        """Return how much more of its owner's share a member takes than it did."""

    def put_within(self, member: MemberT, max_bytes: int, *, keep: bool = True) -> None:
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
                f"The {self.counted_names} of the group's members may have {max_bytes} bytes (group.max.bytes).",
            )
        grows_by = member.charge_bytes if known is None else self.grows_by_bytes(member, known)
        with self.room_for(member.owner, grows_by, in_use=known is not None) as has_room:
            if not has_room:
                raise self.book.ledgers.members.refusal()
            if keep:
                self.put(member)

    def member(self, member_id: str, instance_id: str | None = None) -> MemberT:
        """Return the member. Raises KafkaError.

        UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another has the instance id.
        """
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

    def set_target(self, member_id: str, target: TargetT | None) -> None:
        """Replace a member's target; None forgets it."""
        if self.target.get(member_id) == target:
            return
        if target is None:
            del self.target[member_id]
        else:
            self.target[member_id] = target
        self.changes.targets.add(member_id)
