"""A member of a streams group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from klamm_broker.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from klamm_broker.groups.consumer.state import MemberState
from klamm_broker.groups.member import NAME_BYTES, charge_bytes
from klamm_broker.groups.streams.requests import Endpoint
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.limits.ledger import UNKNOWN_OWNER

TASK_BYTES: Final = 300
"""About what a task takes that is assigned to a member."""
_NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_EPOCHS: Final[Mapping[Task, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """The coordinator's state of one member: Kafka's `StreamsGroupMember`.

    `owner`               who has joined with it, whose share of `group.members.max.bytes` it counts for.
    `process_id`          of the application instance, which may have several members: they share a state directory.
    `topology_epoch`      of the topology with which it joined.
    `epoch`               that of the assignment that it has, or STATIC_LEAVE_EPOCH; `previous_epoch` the one before,
                          which is accepted once more because the response may have been lost.
    `assigned`            what it has or is to take.
    `pending_revocation`  what it has to give back.
    `assignment_epochs`   the epoch at which it was assigned each of its active tasks.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: _NO_TAGS)
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NONE
    pending_revocation: Tasks = NONE
    assignment_epochs: Mapping[Task, int] = field(default_factory=lambda: _NO_EPOCHS)
    owner: str = UNKNOWN_OWNER

    @property
    def held(self) -> Tasks:
        """All that it may still have: what it is to give back is its own until it has done so."""
        return self.assigned.united(self.pending_revocation)

    @property
    def size_bytes(self) -> int:
        """Return the approximate bytes that it takes, without its assignment."""
        endpoint = "" if self.endpoint is None else self.endpoint.host
        names = self.member_id, self.instance_id or "", self.rack_id or "", self.client_id, self.process_id, endpoint
        tags = sum(len(key) + len(value) + NAME_BYTES for key, value in self.client_tags.items())
        return sum(map(len, names)) + tags

    @property
    def charge_bytes(self) -> int:
        """Return the bytes that it counts towards `group.members.max.bytes`."""
        tasks = self.assigned.total + self.pending_revocation.total
        return charge_bytes(self.size_bytes, 0) + TASK_BYTES * tasks

    @property
    def is_away(self) -> bool:
        """Return True if it is a static member that has left temporarily."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if it has the whole target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch
