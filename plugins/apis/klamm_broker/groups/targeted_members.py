"""`TargetedMembers`: members of a group whose target assignments the server computes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.epoch_group import EpochGroup
from klamm_broker.groups.group import Group

if TYPE_CHECKING:
    from klamm_broker.storage.store import Statement


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

    @property
    def epoch(self) -> int: ...

    def is_reconciled_to(self, epoch: int, /) -> bool: ...


@dataclass(slots=True)
class Changes:
    """Changes to write: the group's row, a streams group's topology, and the ids of members.

    `members` are those whose row, and `targets` those whose target, is to be written or deleted. `before` are
    statements that run first, such as those that delete the group that this one replaces.
    """

    group: bool = False
    topology: bool = False
    members: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    before: list[Statement] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.group or self.topology or bool(self.members or self.targets or self.before)

    def add(self, other: Changes) -> None:
        """Add older changes, which could not be written."""
        self.group = self.group or other.group
        self.topology = self.topology or other.topology
        self.members |= other.members
        self.targets |= other.targets
        self.before = [*other.before, *self.before]


MemberT = TypeVar("MemberT", bound=TargetedMember)
TargetT = TypeVar("TargetT")


class TargetedMembers(EpochGroup, Generic[MemberT, TargetT]):
    """The members of a group, those that are static, and what each is to have.

    `target`         what each member is to have.
    `members_bytes`  about what the members take, but their assignments.
    `changes`        what is to be written.
    `counted_names`  what of a member counts, as errors say it.
    """

    counted_names: ClassVar[str]

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.members: dict[str, MemberT] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, TargetT] = {}
        self.members_bytes = 0
        self.changes = Changes()

    @abstractmethod
    def index(self, member: MemberT) -> None:
        """Note what a member has, which is put into the group."""

    @abstractmethod
    def unindex(self, member: MemberT) -> None:
        """Forget what a member had, which is replaced or removed."""

    def put(self, member: MemberT) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        if old == member:
            return
        if old is not None:
            self._uncount(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.members_bytes += member.size_bytes
        self.count_members(member.owner, member.charge_bytes)
        self.index(member)
        self.changes.members.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member; what it had is free."""
        member = self.members.pop(member_id)
        self._uncount(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self.changes.members.add(member_id)
        self.set_target(member_id, None)

    def _uncount(self, member: MemberT) -> None:
        self.members_bytes -= member.size_bytes
        self.count_members(member.owner, -member.charge_bytes)
        self.unindex(member)

    def epoch_of(self, member_id: str) -> int | None:
        member = self.members.get(member_id)
        return None if member is None else member.epoch

    @property
    def is_reconciled(self) -> bool:
        """Return True if all members have what they are to have."""
        return all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())

    def bump_epoch(self) -> None:
        """Start a new epoch: members, what they read, or topics have changed."""
        self.epoch += 1
        self.changes.group = True

    @property
    def is_expected(self) -> bool:
        return False

    def forget_expected(self) -> None:
        """No member is expected: members join in one step."""

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
