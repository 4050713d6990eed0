"""`TargetedMembers`: members of a group whose target assignments the server computes, and their states."""

from __future__ import annotations

import enum
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.epoch_group import JOIN_EPOCH, STATIC_LEAVE_EPOCH, EpochGroup, EpochMember
from klamm_broker.groups.group import CommittedPartitions, Group


class MemberState(enum.Enum):
    """Progress of a member in the reconciliation of its assignment; the value is the one in the store.

        STABLE ◄──► UNREVOKED        it owns partitions that it must revoke
          ▲           ▲
          │           ▼
          └───────► UNRELEASED       it waits for partitions that other members still own

    Each state may follow itself: a new target can bring new work of the same kind.
    """

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


# Only subclasses have objects, so this class gets no `__init__`, `__repr__` and `__eq__`: making them slows down a
# start.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class TargetedMember(EpochMember):
    """A member of a consumer or a streams group; `state` is its progress towards its target."""

    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    state: MemberState = MemberState.STABLE

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Return the approximate size in bytes of the member, without its assignment."""

    @property
    def is_away(self) -> bool:
        """Return True if the member is static and has left temporarily."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if the member has the whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


MemberT = TypeVar("MemberT", bound=TargetedMember)


def in_place_of(old: MemberT, member_id: str) -> MemberT:
    """Return a new member with another member id, epoch 0, and the assignment of the static member that it replaces."""
    return replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)


TargetT = TypeVar("TargetT")


class TargetedMembers(EpochGroup[MemberT], Generic[MemberT, TargetT]):
    """The members of a group, the static ones among them, and their target assignments. The caller holds the group's
    lock.

    `target` has the target assignment of each member. `members_bytes` is the approximate size of the members, without
    their assignments. `counted_names` names the counted part of a member in error messages. `no_target` is the target
    of a member that has none.
    """

    counted_names: ClassVar[str]
    no_target: ClassVar[Any]

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.static_members: dict[str, str] = {}
        self.target: dict[str, TargetT] = {}
        self.members_bytes = 0

    def index(self, member: MemberT) -> None:
        super().index(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members_bytes += member.size_bytes

    def unindex(self, member: MemberT) -> None:
        super().unindex(member)
        # A member that joins again may have another instance id, so its old one is removed too.
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        self.members_bytes -= member.size_bytes

    def remove(self, member_id: str) -> None:
        """Remove a member; its assignment becomes free."""
        super().remove(member_id)
        self.set_target(member_id, None)

    def check_epoch(self, member: MemberT, epoch: int, *, has_only_assigned: bool) -> None:
        """Raise KafkaError(FENCED_MEMBER_EPOCH) for an epoch that differs from the member's.

        The previous epoch is accepted if the member owns nothing beyond its assignment: the last response may have been
        lost.
        """
        is_lost = epoch == member.previous_epoch and epoch < member.epoch and has_only_assigned
        if epoch != member.epoch and not is_lost:
            raise self.fenced(member, epoch)

    def unreleased(self, old: MemberT, member_id: str) -> KafkaError:
        """Return the error for an instance id whose present member has not left."""
        return KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {old.instance_id} cannot join the group because the"
            f" instance id is owned by {old.member_id} member.",
        )

    def _put_instead(self, old: MemberT, new: MemberT) -> None:
        target = self.target_of(old.member_id)
        self.remove(old.member_id)
        self.put(new)
        self.set_target(new.member_id, target)

    @property
    def is_reconciled(self) -> bool:
        """Return True if all members have their target assignments."""
        return all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())

    @property
    def is_expected(self) -> bool:
        return False

    def forget_expected(self) -> None:
        """Do nothing: members join in one step, so no member is ever expected."""

    @abstractmethod
    def grows_by_bytes(self, member: MemberT, known: MemberT) -> int:
        """Return the number of bytes that a member adds to its owner's share when it replaces the known one."""

    def put_within(
        self, member: MemberT, max_bytes: int, *, keep: bool = True, replaced: MemberT | None = None
    ) -> None:
        """Add or replace a member. With `keep=False`, only check that there is room. The member gets the target of the
        `replaced` member.

        Raises KafkaError(GROUP_MAX_SIZE_REACHED) if the member grows by more than the remaining room.
        """
        known = replaced or self.members.get(member.member_id)
        if known == member:
            return
        more_bytes = member.size_bytes - (0 if known is None else known.size_bytes)
        if more_bytes > 0 and self.members_bytes + more_bytes > max_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {self.counted_names} of the group's members may have at most {max_bytes} bytes "
                "(group.max.bytes).",
            )
        grows_by = member.charge_bytes if known is None else self.grows_by_bytes(member, known)
        with self.room_for(member.owner, grows_by, in_use=known is not None) as has_room:
            if not has_room:
                raise self.book.ledgers.members.refusal()
            if keep and replaced is not None:
                self._put_instead(replaced, member)
            elif keep:
                self.put(member)

    def member(self, member_id: str, instance_id: str | None = None) -> MemberT:
        """Return the member. Raises KafkaError.

        UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id.
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
        return super().member(member_id)

    def target_of(self, member_id: str) -> TargetT:
        """Return the member's target assignment."""
        target: TargetT = self.target.get(member_id, self.no_target)
        return target

    def set_target(self, member_id: str, target: TargetT | None) -> None:
        """Replace a member's target; None removes it."""
        if self.target.get(member_id) == target:
            return
        if target is None:
            del self.target[member_id]
        else:
            self.target[member_id] = target
        self.changes.targets.add(member_id)

    # Offsets

    @abstractmethod
    def assigned_since(self, member: MemberT, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch at which a partition was assigned to a member; None if the member does not have it."""

    def stale(self, member: MemberT) -> KafkaError:
        """Return the error for an epoch that differs from the member's current epoch."""
        return KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def validate_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        if self.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and not self.members:
            return
        member = self.member(member_id)
        if generation_id > member.epoch:
            raise self.stale(member)
        if generation_id < member.epoch:
            # A member whose epoch has just increased may still commit for the partitions that it has kept (KIP-1251).
            for topic_id, index in partitions:
                since = self.assigned_since(member, topic_id, index)
                if since is None or generation_id < since:
                    raise self.stale(member)

    def validate_transactional_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        """Check a commit that is part of a transaction. As in Kafka, clients before TxnOffsetCommit v3 name neither
        member nor epoch.
        """
        if not self.is_dead and generation_id == -1 and not member_id and group_instance_id is None:
            return
        self.validate_commit(member_id, group_instance_id, generation_id, partitions)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is not None or member_epoch >= 0:
            member = self.member(member_id or "")
            if member_epoch != member.epoch:
                raise self.stale(member)

    def validate_offset_delete(self) -> None:
        """Do nothing: the group itself needs no check, and `is_subscribed_to` is checked for each topic."""
