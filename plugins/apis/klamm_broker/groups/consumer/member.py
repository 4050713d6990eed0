"""`ConsumerMember`: the state of one member of a consumer group. It is immutable: a change makes a new object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.member import NAME_BYTES, charge_bytes
from klamm_broker.groups.requests import Protocol
from klamm_broker.groups.targeted_members import TargetedMember

PARTITION_BYTES: Final = 200
"""Approximate size of a partition that is assigned to a member."""

NO_PARTITIONS: Final[Mapping[bytes, frozenset[int]]] = MappingProxyType({})

AssignmentEpochs: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Member epochs by topic id and partition."""
NO_EPOCHS: Final[AssignmentEpochs] = MappingProxyType({})


class ClassicProtocol(NamedTuple):
    """The JoinGroup request of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember(TargetedMember):
    """The coordinator's state of one member: Kafka's `ConsumerGroupMember`.

    `topics`              names of subscribed topics; `regex` is an expression, empty for none.
    `assigned`            the partitions that the member has or will get.
    `pending_revocation`  the partitions that the member must revoke.
    `assignment_epochs`   the epoch at which the member was assigned each of these partitions.
    `classic`             set for a member that uses the classic protocol.
    """

    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    pending_revocation: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    assignment_epochs: AssignmentEpochs = field(default_factory=lambda: NO_EPOCHS)
    classic: ClassicProtocol | None = None

    @property
    def held(self) -> Partitions:
        """Return all partitions that the member may still read, including those that it has yet to revoke."""
        none: frozenset[int] = frozenset()
        return {
            topic: self.assigned.get(topic, none) | self.pending_revocation.get(topic, none)
            for topic in sorted(self.assigned.keys() | self.pending_revocation.keys())
        }

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch at which the member got a partition; None if it does not have the partition."""
        if partition in self.assigned.get(topic_id, ()) or partition in self.pending_revocation.get(topic_id, ()):
            return self.assignment_epochs.get(topic_id, {}).get(partition, self.epoch)
        return None

    @property
    def size_bytes(self) -> int:
        names = self.member_id, self.instance_id or "", self.rack_id or "", self.client_id, self.regex, *self.topics
        protocols = () if self.classic is None else self.classic.protocols
        return sum(map(len, names)) + sum(len(name) + len(metadata) for name, metadata in protocols)

    @property
    def charge_bytes(self) -> int:
        names = len(self.topics) + (0 if self.classic is None else len(self.classic.protocols))
        partitions = sum(map(len, self.assigned.values())) + sum(map(len, self.pending_revocation.values()))
        return charge_bytes(self.size_bytes, names) + PARTITION_BYTES * partitions

    def grows_by_bytes(self, before: ConsumerMember) -> int:
        """Return by how many bytes the member's counted size exceeds that of `before`; assignments do not count."""
        names = len(self.topics) - len(before.topics)
        return self.size_bytes - before.size_bytes + NAME_BYTES * names
