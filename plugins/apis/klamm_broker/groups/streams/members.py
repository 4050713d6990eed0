"""The members of a streams group, their targets, and which member has which task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_broker.groups.group import Group
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.groups.targeted_members import TargetedMembers

if TYPE_CHECKING:
    from klamm_broker.groups.streams.reconciliation import FreeRoles
    from klamm_broker.storage.store import Statement


@dataclass(slots=True)
class Changes:
    """Changes to write: the group's row, its topology, and the member ids whose member or target was set or removed.

    `before` are statements that run first, such as those that delete the group that this one replaces.
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


class TaskOffsets(NamedTuple):
    """The offsets of the changelogs of a member's tasks, and where these end, as the member reports them."""

    offsets: Mapping[Task, int]
    end_offsets: Mapping[Task, int]


NO_OFFSETS: Final = TaskOffsets({}, {})


class StreamsMembers(TargetedMembers[StreamsMember, Tasks]):
    """The members of a streams group and the tasks they have; `StreamsGroup` adds epochs, topology and state.

    `offsets_of`  what members report of their changelogs; it is not stored.
    """

    counted_names = "names"
    changes: Changes

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.offsets_of: dict[str, TaskOffsets] = {}
        self.changes = Changes()
        # The members that have each task: as active, as standby, as warm-up.
        self._holders: tuple[dict[Task, set[str]], dict[Task, set[str]], dict[Task, set[str]]] = ({}, {}, {})

    def put(self, member: StreamsMember) -> None:
        """Add or replace a member."""
        old = self.members.get(member.member_id)
        if old == member:
            return
        if old is not None:
            self._forget(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.members_bytes += member.size_bytes
        self.count_members(member.owner, member.charge_bytes)
        for holders, tasks in zip(self._holders, member.held, strict=True):
            for task in tasks:
                holders.setdefault(task, set()).add(member.member_id)
        self.changes.members.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member; its tasks are free."""
        member = self.members.pop(member_id)
        self._forget(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self.offsets_of.pop(member_id, None)
        self.changes.members.add(member_id)
        self.set_target(member_id, None)

    def _forget(self, member: StreamsMember) -> None:
        self.members_bytes -= member.size_bytes
        self.count_members(member.owner, -member.charge_bytes)
        for holders, tasks in zip(self._holders, member.held, strict=True):
            for task in tasks:
                holders[task].discard(member.member_id)
                if not holders[task]:
                    del holders[task]

    def grows_by_bytes(self, member: StreamsMember, known: StreamsMember) -> int:
        """Return how many bytes more its names have."""
        return member.size_bytes - known.size_bytes

    def free_for(self, member: StreamsMember) -> FreeRoles:
        """Return whether a member may take a task, in each role.

        A task is active on one member. A process has one directory for the state of a task: no two members of it can
        have the same task, whatever their roles.
        """

        def is_elsewhere(holders: Mapping[Task, set[str]], task: Task, *, in_process: bool) -> bool:
            return any(
                other != member.member_id and (not in_process or self.members[other].process_id == member.process_id)
                for other in holders.get(task, ())
            )

        active, *copies = self._holders

        def as_active(task: Task) -> bool:
            has_copy = any(is_elsewhere(holders, task, in_process=True) for holders in copies)
            return not has_copy and not is_elsewhere(active, task, in_process=False)

        def as_copy(task: Task) -> bool:
            return not any(is_elsewhere(holders, task, in_process=True) for holders in self._holders)

        return as_active, as_copy, as_copy

    def target_of(self, member_id: str) -> Tasks:
        """The member's target assignment."""
        return self.target.get(member_id, NONE)

    def report_offsets(
        self, member: StreamsMember, offsets: Mapping[Task, int] | None, end_offsets: Mapping[Task, int] | None
    ) -> None:
        """Take over what a member reports of the changelogs of its tasks; None: unchanged."""
        known = self.offsets_of.get(member.member_id, NO_OFFSETS)
        mine = frozenset().union(*member.held)

        def of_its_tasks(reported: Mapping[Task, int] | None, known: Mapping[Task, int]) -> Mapping[Task, int]:
            return known if reported is None else {task: reported[task] for task in mine & reported.keys()}

        self.offsets_of[member.member_id] = TaskOffsets(
            of_its_tasks(offsets, known.offsets), of_its_tasks(end_offsets, known.end_offsets)
        )
