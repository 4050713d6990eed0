"""A consumer group: its members, epochs, target assignment and state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klamm import ErrorCode, KafkaError
from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from klamm_broker.groups.consumer.state import (
    NEXT_STATES,
    ConsumerGroupState,
    IllegalConsumerGroupTransitionError,
)
from klamm_broker.groups.group import CommittedOffset, Group

if TYPE_CHECKING:
    from klamm.runtime import Timer
    from klamm_broker.groups.consumer.subscriptions import ResolvedRegex
    from klamm_broker.storage.store import Statement

UNKNOWN_GENERATION: Final = -1


@dataclass(slots=True)
class Changes:
    """What the store does not have yet: the group's row, members and targets by member id, present ones or not.

    `before` are statements that go first, such as those that delete what the group replaces.
    """

    group: bool = False
    members: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    before: list[Statement] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.group or bool(self.members) or bool(self.targets) or bool(self.before)

    def add(self, other: Changes) -> None:
        """Add older ones, which could not be written."""
        self.group = self.group or other.group
        self.members |= other.members
        self.targets |= other.targets
        self.before = [*other.before, *self.before]


class ConsumerGroup(Group):
    """State of one consumer group, as Kafka's `ConsumerGroup`.

        EMPTY ──► ASSIGNING ──► RECONCILING ──► STABLE
                   ▲  ▲            │  ▲            │
                   │  └────────────┘  └────────────┤
                   └───────────────────────────────┘
        and from each of them to EMPTY when the last member goes, and to DEAD, which is final.

    The state follows from the epochs: ASSIGNING while the group's epoch is beyond that of the target assignment,
    RECONCILING while a member is not at its target.

    `epoch`             rises with each change of members, subscriptions or their topics.
    `assignment_epoch`  the group epoch of which `target` is.
    `metadata_hash`     of ids and partition counts of the topics that are read; `metadata_generation` is the
                        generation of all topics at which it was computed, -1 for never.
    `regexes`           the topics of each regular expression of a member.
    `timers`            by what they are for and member id; `deadlines` end sessions, monotonic.
    `changes`           what is to be written.
    """

    group_type = "consumer"

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.state = ConsumerGroupState.EMPTY
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.metadata_hash = ""
        self.metadata_generation = -1
        self.subscribed_topics: frozenset[str] = frozenset()
        self.regexes: dict[str, ResolvedRegex] = {}
        self.timers: dict[tuple[str, str], Timer] = {}
        self.deadlines: dict[str, int] = {}
        self.changes = Changes()
        self._owned: Counter[tuple[bytes, int]] = Counter()

    # State

    def refresh_state(self) -> None:
        """Let the state follow the epochs. Raises IllegalConsumerGroupTransitionError for a dead group."""
        if not self.members:
            state = ConsumerGroupState.EMPTY
        elif self.epoch > self.assignment_epoch:
            state = ConsumerGroupState.ASSIGNING
        elif all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            state = ConsumerGroupState.STABLE
        else:
            state = ConsumerGroupState.RECONCILING
        self._transition_to(state)

    def _transition_to(self, state: ConsumerGroupState) -> None:
        if state not in NEXT_STATES[self.state]:
            raise IllegalConsumerGroupTransitionError(self.group_id, self.state, state)
        self.state = state

    def bump_epoch(self) -> None:
        """Begin a new epoch: members, subscriptions or topics have changed."""
        self.epoch += 1
        self.changes.group = True

    # Members

    def put(self, member: ConsumerMember) -> None:
        """Add a member or replace what is known of it."""
        old = self.members.get(member.member_id)
        if old == member:
            return
        if old is not None:
            self._disown(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                self._owned.update((topic, index) for index in indexes)
        self.changes.members.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member; what it held is free."""
        member = self.members.pop(member_id)
        self._disown(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self.changes.members.add(member_id)
        self.set_target(member_id, None)

    def _disown(self, member: ConsumerMember) -> None:
        owned = self._owned
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                for index in indexes:
                    owned[topic, index] -= 1
                    if not owned[topic, index]:
                        del owned[topic, index]

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member holds the partition or is to give it up."""
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
        """What the member is to have."""
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
        """The one that most members want, None if none wants a certain one."""
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
        """Whether some of the member's target is still held by others."""
        return any(
            self.is_owned(topic, index)
            for topic, indexes in self.target_of(member.member_id).items()
            for index in indexes - member.assigned.get(topic, frozenset())
        )

    # What all kinds of groups answer

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str | None:
        return consumer_protocol.PROTOCOL_TYPE

    @property
    def is_dead(self) -> bool:
        return self.state is ConsumerGroupState.DEAD

    @property
    def is_empty(self) -> bool:
        return self.state is ConsumerGroupState.EMPTY

    @property
    def is_expected(self) -> bool:
        return False

    def forget_expected(self) -> None:
        """Nobody is: members join in one step."""

    def die(self) -> None:
        self._transition_to(ConsumerGroupState.DEAD)
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def validate_commit(self, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        if self.is_dead:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_id < 0 and not self.members:
            return
        self._validate_epoch(self.member(member_id), generation_id)

    def validate_transactional_commit(self, member_id: str, group_instance_id: str | None, generation_id: int) -> None:
        try:
            self.validate_commit(member_id, group_instance_id, generation_id)
        except KafkaError as error:
            if error.error_code == ErrorCode.STALE_MEMBER_EPOCH:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is not None or member_epoch >= 0:
            self._validate_epoch(self.member(member_id or ""), member_epoch)

    def _validate_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch != member.epoch:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION if member.classic is not None else ErrorCode.STALE_MEMBER_EPOCH,
                f"The received epoch {epoch} does not match the member's epoch {member.epoch}.",
            )

    def validate_offset_delete(self) -> None:
        """Each topic is looked at on its own."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_timestamp_ms
