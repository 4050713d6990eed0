"""The members of a streams group, their target assignments, and the current owner of each task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm_broker.groups.group import Group
from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.tasks import NONE, Task, Tasks
from klamm_broker.groups.targeted_members import TargetedMembers

if TYPE_CHECKING:
    from klamm_broker.groups.streams.reconciliation import FreeRoles


class TaskOffsets(NamedTuple):
    """The changelog offsets of a member's tasks, and the end offsets of these changelogs, as the member reports
    them.
    """

    offsets: Mapping[Task, int]
    end_offsets: Mapping[Task, int]


NO_OFFSETS: Final = TaskOffsets({}, {})


class StreamsMembers(TargetedMembers[StreamsMember, Tasks]):
    """The members of a streams group and the tasks they have; `StreamsGroup` adds epochs, topology and state.

    `offsets_of` changelog offsets that members report; not stored.
    """

    counted_names = "names"
    no_target = NONE

    def __init__(self, group_id: str, replaced: Group | None = None) -> None:
        super().__init__(group_id, replaced)
        self.offsets_of: dict[str, TaskOffsets] = {}
        # The members that have each task: as an active task, as a standby and as a warm-up copy.
        self._holders: tuple[dict[Task, set[str]], dict[Task, set[str]], dict[Task, set[str]]] = ({}, {}, {})

    def index(self, member: StreamsMember) -> None:
        super().index(member)
        for holders, tasks in zip(self._holders, member.held, strict=True):
            for task in tasks:
                holders.setdefault(task, set()).add(member.member_id)

    def remove(self, member_id: str) -> None:
        super().remove(member_id)
        self.offsets_of.pop(member_id, None)

    def unindex(self, member: StreamsMember) -> None:
        super().unindex(member)
        for holders, tasks in zip(self._holders, member.held, strict=True):
            for task in tasks:
                holders[task].discard(member.member_id)
                if not holders[task]:
                    del holders[task]

    def grows_by_bytes(self, member: StreamsMember, known: StreamsMember) -> int:
        """Return the number of bytes by which the member's names grow."""
        return member.size_bytes - known.size_bytes

    def free_for(self, member: StreamsMember) -> FreeRoles:
        """Return whether a member may take a task in each of the roles.

        A task is active on one member only. A process has one directory for the state of a task, so no two of its
        members can have the same task, whatever the roles.
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

    def report_offsets(
        self, member: StreamsMember, offsets: Mapping[Task, int] | None, end_offsets: Mapping[Task, int] | None
    ) -> None:
        """Store the changelog offsets that a member reports for its tasks; None: unchanged."""
        known = self.offsets_of.get(member.member_id, NO_OFFSETS)
        mine = frozenset().union(*member.held)

        def of_its_tasks(reported: Mapping[Task, int] | None, known: Mapping[Task, int]) -> Mapping[Task, int]:
            return known if reported is None else {task: reported[task] for task in mine & reported.keys()}

        self.offsets_of[member.member_id] = TaskOffsets(
            of_its_tasks(offsets, known.offsets), of_its_tasks(end_offsets, known.end_offsets)
        )
