"""`EpochGroup`: a group whose members send heartbeats with epochs. Its state follows from the epochs."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.expiration import ExpirationTimer
from klamm_broker.groups.group import CommittedOffset, Group
from klamm_broker.groups.state import IllegalTransitionError
from klamm_broker.limits.ledger import UNKNOWN_OWNER
from klamm_broker.storage.store import Statement

JOIN_EPOCH: Final = 0
"""The epoch of a member that joins, or joins again without an assignment."""
LEAVE_EPOCH: Final = -1
"""The epoch of a member that leaves."""
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that leaves temporarily."""


# Only subclasses have objects, so this class gets no `__init__`, `__repr__` and `__eq__`: making them slows down a
# start.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class EpochMember(ABC):
    """The coordinator's state of one member: the common part of all types.

    `epoch` is the epoch of the current assignment. `previous_epoch` is accepted too, because the last response may have
    been lost. `owner` is the principal that joined; the member counts towards that principal's share of
    `group.members.max.bytes`.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    owner: str = UNKNOWN_OWNER

    @property
    @abstractmethod
    def charge_bytes(self) -> int:
        """Return the bytes that the member counts towards `group.members.max.bytes`."""


@dataclass(slots=True)
class Changes:
    """Changes to write: the group's row, a streams group's topology, and the ids of members.

    `members` are the ids whose rows are to be written or deleted, and `targets` the ids whose targets are. `before` are
    statements that run first, e.g. to delete the group that this one replaces.
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


MemberT = TypeVar("MemberT", bound=EpochMember)


class EpochGroup(Group, Generic[MemberT]):
    """The base of consumer, share and streams groups. The caller holds the group's lock.

    `protocol`          the protocol of the members.

    `members`           the members, by member id.
    `changes`           the changes to be written.
    `epoch`             rises with each change of members, subscriptions or topics, from 1.
    `assignment_epoch`  the group epoch of the members' targets.
    `metadata_hash`     a digest of ids and partition counts of the topics that are read; `metadata_generation` is the
                        generation of all topics at which it was computed, -1 for never.
    `timers`            the timers, by purpose and member id; `deadlines` are the ends of sessions, in monotonic
                        nanoseconds.
    """

    protocol: ClassVar[str]
    empty: ClassVar[enum.Enum]
    dead: ClassVar[enum.Enum]

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.members: dict[str, MemberT] = {}
        self.changes = Changes()
        self.state: enum.Enum = self.empty
        self.epoch = 1
        self.assignment_epoch = 0
        self.metadata_hash = ""
        self.metadata_generation = -1
        self.timers: dict[tuple[str, str], ExpirationTimer] = {}
        self.deadlines: dict[str, int] = {}

    def put(self, member: MemberT) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        if old == member:
            return
        if old is not None:
            self.unindex(old)
        self.members[member.member_id] = member
        self.index(member)
        self.changes.members.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member; its partitions become free."""
        self.unindex(self.members.pop(member_id))
        self.changes.members.add(member_id)

    def index(self, member: MemberT) -> None:
        """Count a member, and record its partitions, when it is added to the group."""
        self.count_members(member.owner, member.charge_bytes)

    def unindex(self, member: MemberT) -> None:
        """Undo `index` for a member that is replaced or removed."""
        self.count_members(member.owner, -member.charge_bytes)

    def member(self, member_id: str) -> MemberT:
        """Return the member. Raises KafkaError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def fenced(self, member: MemberT, epoch: int, but: str = "") -> KafkaError:
        """Return the error for an epoch that differs from the member's."""
        size = "greater" if epoch > member.epoch else "smaller"
        return KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The {self.group_type} group member has a {size} member epoch ({epoch}) than the one known by the group"
            f" coordinator ({member.epoch}){but}. The member must abandon all its partitions and rejoin.",
        )

    def check_size(self, member_id: str, max_members: int) -> None:
        """Raise KafkaError(GROUP_MAX_SIZE_REACHED) if there is no room for one more member."""
        if member_id not in self.members and len(self.members) >= max_members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {self.group_type} group has reached its maximum capacity of {max_members} members.",
            )

    def epoch_of(self, member_id: str) -> int | None:
        """Return the epoch of a member; None if it does not exist."""
        member = self.members.get(member_id)
        return None if member is None else member.epoch

    def bump_epoch(self) -> None:
        """Start a new epoch, because members, their subscriptions, or topics have changed."""
        self.epoch += 1
        self.changes.group = True

    def take_changes(self) -> Changes:
        """Return the changes to write now, and reset them."""
        taken, self.changes = self.changes, Changes()
        return taken

    def changes_written(self) -> None:
        """Called when the group's changes are durable. Does nothing here; `ShareGroup` overrides it."""

    @abstractmethod
    def present_state(self) -> enum.Enum:
        """Return the state that follows from the members and the epochs."""

    def refresh_state(self) -> None:
        """Recompute the state. Raises IllegalTransitionError for a dead group."""
        self._transition_to(self.present_state())

    def _transition_to(self, state: enum.Enum) -> None:
        if self.is_dead and state is not self.dead:
            raise IllegalTransitionError(self.group_id, self.state, state)
        self.state = state

    @property
    def state_name(self) -> str:
        name: str = self.state.value
        return name

    @property
    def protocol_type(self) -> str | None:
        return self.protocol

    @property
    def is_dead(self) -> bool:
        return self.state is self.dead

    @property
    def is_empty(self) -> bool:
        return self.state is self.empty

    def die(self) -> None:
        self._transition_to(self.dead)
        self.close_members_account()
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms
