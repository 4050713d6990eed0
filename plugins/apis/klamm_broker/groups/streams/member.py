"""`StreamsMember`: the state of one member of a streams group. It is immutable: a change makes a new object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from klamm_broker.groups.member import NAME_BYTES, charge_bytes
from klamm_broker.groups.streams.requests import Endpoint
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.groups.targeted_members import TargetedMember

TASK_BYTES: Final = 300
"""Approximate bytes that each assigned task adds to a member."""
_NO_TAGS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_EPOCHS: Final[Mapping[Task, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember(TargetedMember):
    """The coordinator's state of one member: Kafka's `StreamsGroupMember`.

    `topology_epoch`      the epoch of the topology with which the member joined.
    `process_id`          identifies the application instance, whose members share a state directory.
    `assigned`            tasks that the member has or is to start.
    `pending_revocation`  tasks that the member must give back.
    `assignment_epochs`   the epoch at which each active task was assigned.
    """

    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: _NO_TAGS)
    assigned: Tasks = NONE
    pending_revocation: Tasks = NONE
    assignment_epochs: Mapping[Task, int] = field(default_factory=lambda: _NO_EPOCHS)

    @property
    def held(self) -> Tasks:
        """Return all tasks that the member may still have, including those that it has yet to give back."""
        return self.assigned.united(self.pending_revocation)

    @property
    def size_bytes(self) -> int:
        endpoint = "" if self.endpoint is None else self.endpoint.host
        names = self.member_id, self.instance_id or "", self.rack_id or "", self.client_id, self.process_id, endpoint
        tags = sum(len(key) + len(value) + NAME_BYTES for key, value in self.client_tags.items())
        return sum(map(len, names)) + tags

    @property
    def charge_bytes(self) -> int:
        tasks = self.assigned.total + self.pending_revocation.total
        return charge_bytes(self.size_bytes, 0) + TASK_BYTES * tasks
