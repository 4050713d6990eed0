"""The members of a consumer group, their targets, and the owners of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from klamm_broker.groups import consumer_protocol
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from klamm_broker.groups.group import Group
from klamm_broker.groups.targeted_members import TargetedMembers


class ConsumerMembership(TargetedMembers[ConsumerMember, Partitions]):
    """The members of a consumer group and the partitions they own; `ConsumerGroup` adds epochs and state.

    `patterns`  the number of members that subscribe to each regular expression. `subscriptions` the number of members
                with the same subscription: names of topics and an expression.
    """

    counted_names = "names and subscriptions"
    no_target = NO_PARTITIONS

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.patterns: Counter[str] = Counter()
        self.subscriptions: Counter[tuple[frozenset[str], str]] = Counter()
        self._owned: Counter[tuple[bytes, int]] = Counter()

    def index(self, member: ConsumerMember) -> None:
        super().index(member)
        self.subscriptions[member.topics, member.regex] += 1
        if member.regex:
            self.patterns[member.regex] += 1
        for parts in (member.assigned, member.pending_revocation):
            for topic, indexes in parts.items():
                self._owned.update((topic, index) for index in indexes)

    def grows_by_bytes(self, member: ConsumerMember, known: ConsumerMember) -> int:
        """Return what it takes beyond what stays of it."""
        return member.grows_by_bytes(known)

    def unindex(self, member: ConsumerMember) -> None:
        super().unindex(member)
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
        """Return True if a member owns the partition or has not revoked it yet."""
        return (topic_id, partition) in self._owned

    @property
    def preferred_assignor(self) -> str | None:
        """Return the server assignor that most members request; None if no member names one."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(wanted, key=lambda name: wanted[name], default=None)

    # Members that speak the classic protocol

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
