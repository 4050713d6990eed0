"""A consumer group: its members, epochs, target assignment and state."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from klamm import ErrorCode, KafkaError
from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.consumer.member import ConsumerMember
from klamm_broker.groups.consumer.membership import ConsumerMembership
from klamm_broker.groups.consumer.state import NEXT_STATES, ConsumerGroupState
from klamm_broker.groups.group import Group
from klamm_broker.limits.ledger import UNKNOWN_OWNER

_MATCH_BYTES: Final = 64
"""Approximate size of a topic that an expression matches."""


class ResolvedRegex(NamedTuple):
    """The topics that an expression matched, the generation of all topics at that time, and the monotonic time.

    They count for `owner`, the principal that joined with the expression.
    """

    topics: frozenset[str]
    generation: int
    at_ns: int
    owner: str = UNKNOWN_OWNER


class ConsumerGroup(ConsumerMembership):
    """State of one consumer group, as Kafka's `ConsumerGroup`.

        EMPTY ──► ASSIGNING ──► RECONCILING ──► STABLE
                   ▲  ▲            │  ▲            │
                   │  └────────────┘  └────────────┤
                   └───────────────────────────────┘
        and from each of them to EMPTY when the last member goes, and to DEAD, which is final.

    The state follows from the epochs: ASSIGNING while the group's epoch is beyond that of the target assignment,
    RECONCILING while a member is not at its target.

    `regexes` has the topics of each regular expression of a member; known ones are not looked up again before
    `regexes_due_ns`, monotonic.
    """

    group_type = "consumer"
    protocol = consumer_protocol.PROTOCOL_TYPE
    next_states, empty, dead = NEXT_STATES, ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
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

    # State

    def present_state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.STABLE if self.is_reconciled else ConsumerGroupState.RECONCILING

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
