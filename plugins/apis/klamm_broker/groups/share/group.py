"""A share group: its members, epochs and state."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from klamm import ErrorCode, KafkaError
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import PARTITION_BYTES
from klamm_broker.groups.epoch_group import Changes, EpochGroup, EpochMember
from klamm_broker.groups.group import CommittedOffset, CommittedPartitions
from klamm_broker.groups.member import charge_bytes


class ShareGroupState(enum.Enum):
    """State of a share group; the value is the name that clients see."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _STABLE, _DEAD = ShareGroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember(EpochMember):
    """The coordinator's state of one member: Kafka's `ShareGroupMember`.

    `assigned` is the current assignment; the member gets `target` with its next heartbeat.
    """

    topics: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)
    target: Partitions = field(default_factory=dict)

    @property
    def charge_bytes(self) -> int:
        names = self.member_id, self.rack_id or "", self.client_id, *self.topics
        partitions = sum(map(len, self.assigned.values())) + sum(map(len, self.target.values()))
        return charge_bytes(sum(map(len, names)), len(self.topics)) + PARTITION_BYTES * partitions


class ShareGroup(EpochGroup[ShareMember]):
    """State of one share group, as Kafka's `ShareGroup`. The caller holds the group's lock.

        EMPTY ◄──► STABLE     and from both to DEAD, which is final

    `is_stored`         True if the store is known to have the group's row.
    `is_deleting`       True if a deletion has been submitted, and no later write of the group.
    """

    group_type = protocol = "share"
    empty, dead = _EMPTY, _DEAD

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.is_stored = False
        self.is_deleting = False
        self._is_deleted = False

    def take_changes(self) -> Changes:
        taken = super().take_changes()
        if taken:
            self.is_deleting = False
        return taken

    def changes_written(self) -> None:
        self.is_stored = True

    def present_state(self) -> ShareGroupState:
        return _STABLE if self.members else _EMPTY

    # Common to all types of groups

    @property
    def is_expected(self) -> bool:
        # A share group has no committed offsets whose expiry could remove it, so it stays until a client deletes it.
        return not self._is_deleted

    def forget_expected(self) -> None:
        self.is_deleting = True

    def deletion_written(self) -> None:
        self._is_deleted = self.is_deleting

    def validate_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, partitions: CommittedPartitions
    ) -> None:
        raise self._no_offsets()

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow any fetch. It finds no offsets, as for a group that does not exist."""

    def validate_offset_delete(self) -> None:
        raise self._no_offsets()

    def _no_offsets(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is a share group.")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        return None
