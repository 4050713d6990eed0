"""A consumer group: its members, epochs, target assignment and state."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from klamm import ErrorCode, KafkaError
from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from klamm_broker.groups.group import Group
from klamm_broker.groups.targeted_members import TargetedMembers
from klamm_broker.limits.ledger import UNKNOWN_OWNER

T = TypeVar("T")

_MATCH_BYTES: Final = 64
"""Approximate size of a topic that an expression matches."""


class ConsumerGroupState(enum.Enum):
    """State of a consumer group; the value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _ASSIGNING, _RECONCILING, _STABLE, _DEAD = ConsumerGroupState


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, the generation of all topics at that time, and the monotonic time. The
    topics count for `owner`, the principal that joined with the expression.
    """

    topics: frozenset[str]
    generation: int
    at_ns: int
    owner: str = UNKNOWN_OWNER


class ConsumerGroup(TargetedMembers[ConsumerMember, Partitions]):
    """State of one consumer group, as Kafka's `ConsumerGroup`. The caller holds the group's lock.

        EMPTY ──► ASSIGNING ──► RECONCILING ──► STABLE
                   ▲  ▲            │  ▲            │
                   │  └────────────┘  └────────────┤
                   └───────────────────────────────┘
        and from each of them to EMPTY when the last member goes, and to DEAD, which is final.

    The state follows from the epochs: ASSIGNING while the group's epoch is higher than that of the target assignment,
    RECONCILING while a member has not reached its target.

    `patterns` counts the members that subscribe to each regular expression; `subscriptions` counts the members with the
    same subscription: names of topics and an expression. `regexes` has the topics that each expression matches. Known
    expressions are not looked up again before the monotonic time `regexes_due_ns`.
    """

    group_type = "consumer"
    protocol = consumer_protocol.PROTOCOL_TYPE
    empty, dead = _EMPTY, _DEAD
    counted_names = "names and subscriptions"
    no_target = NO_PARTITIONS

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.patterns: Counter[str] = Counter()
        self.subscriptions: Counter[tuple[frozenset[str], str]] = Counter()
        self._owned: Counter[tuple[bytes, int]] = Counter()
        self.subscribed_topics: frozenset[str] = frozenset()
        self.regexes: dict[str, ResolvedRegex] = {}
        self.regexes_due_ns = 0

    def take_regexes(self, regexes: dict[str, ResolvedRegex]) -> None:
        """Replace the topics that the expressions match."""
        more: Counter[str] = Counter()
        for sign, some in ((-1, self.regexes), (1, regexes)):
            for each in some.values():
                more[each.owner] += sign * _MATCH_BYTES * len(each.topics)
        for owner, more_bytes in more.items():
            self.count_members(owner, more_bytes)
        self.regexes = regexes

    # Members and their partitions

    def index(self, member: ConsumerMember) -> None:
        super().index(member)
        self.subscriptions[member.topics, member.regex] += 1
        if member.regex:
            self.patterns[member.regex] += 1
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                self._owned.update((topic, index) for index in indexes)

    def grows_by_bytes(self, member: ConsumerMember, known: ConsumerMember) -> int:
        """Return by how many bytes the group grows if this member replaces the known one."""
        return member.grows_by_bytes(known)

    def unindex(self, member: ConsumerMember) -> None:
        super().unindex(member)
        _take_one(self.subscriptions, (member.topics, member.regex))
        if member.regex:
            _take_one(self.patterns, member.regex)
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                for index in indexes:
                    _take_one(self._owned, (topic, index))

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Return True if a member owns the partition or has not revoked it yet."""
        return (topic_id, partition) in self._owned

    @property
    def preferred_assignor(self) -> str | None:
        """Return the server assignor that most members request; None if no member names one."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(wanted, key=lambda name: wanted[name], default=None)

    def supports_classic_protocols(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        """Return True if a classic member with these protocols could join."""
        if protocol_type != consumer_protocol.PROTOCOL_TYPE:
            return False
        others = [member.classic for member in self.members.values() if member.classic is not None]
        known = Counter(name for classic in others for name, _ in classic.protocols)
        return any(known[name] == len(others) for name in protocols)

    def awaits_release(self, member: ConsumerMember) -> bool:
        """Return True if other members still own some of the member's target partitions."""
        return any(
            self.is_owned(topic, index)
            for topic, indexes in self.target_of(member.member_id).items()
            for index in indexes - member.assigned.get(topic, frozenset())
        )

    # State

    def present_state(self) -> ConsumerGroupState:
        if not self.members:
            return _EMPTY
        if self.epoch > self.assignment_epoch:
            return _ASSIGNING
        return _STABLE if self.is_reconciled else _RECONCILING

    # Common to all types of groups

    def require_classic_protocol(self, member_id: str) -> None:
        """Raise KafkaError(UNSUPPORTED_VERSION) for a member that speaks the consumer protocol."""
        member = self.members.get(member_id)
        if member is not None and member.classic is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def assigned_since(self, member: ConsumerMember, topic_id: bytes, partition: int) -> int | None:
        return member.assignment_epoch(topic_id, partition)

    def stale(self, member: ConsumerMember) -> KafkaError:
        code = ErrorCode.ILLEGAL_GENERATION if member.classic is not None else ErrorCode.STALE_MEMBER_EPOCH
        return KafkaError(code)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics


def _take_one(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
