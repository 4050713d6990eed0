"""One step of a member of a streams group from its present assignment towards its target.

Follows Kafka's `CurrentAssignmentBuilder` of streams groups. `StreamsAssignment` calls `next_step` at each heartbeat,
with the group's lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from klamm_broker.groups.streams.member import StreamsMember
from klamm_broker.groups.streams.tasks import NO_TASKS, NONE, Task, Tasks
from klamm_broker.groups.targeted_members import MemberState

IsFree: TypeAlias = Callable[[Task], bool]
FreeRoles: TypeAlias = tuple[IsFree, IsFree, IsFree]
"""Functions that return True if a member may take a task: as an active task, as a standby copy, as a warm-up copy."""


def next_step(
    member: StreamsMember, target_epoch: int, target: Tasks, free: FreeRoles, owned: Tasks | None
) -> StreamsMember:
    """Return the member after one more step. It is unchanged if the client must act first.

    At its present epoch, the member first gives back the tasks that are not in its target. Then it enters the target
    epoch and gets those tasks of its target that no other member has. The others follow later. `owned` are the tasks
    that the member reports to have, or None.
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED:
        if _still_has(owned, member.pending_revocation):
            return member
        return _step_from(member, member.epoch + 1, target_epoch, target, free, owned)
    return _step_from(member, member.epoch, target_epoch, target, free, owned)


def _still_has(owned: Tasks | None, revoked: Tasks) -> bool:
    """Return True if the member may still have some of these tasks, or does not report its tasks."""
    return revoked.total > 0 and (owned is None or owned.touches(revoked))


def _step_from(
    member: StreamsMember, epoch: int, target_epoch: int, target: Tasks, free: FreeRoles, owned: Tasks | None
) -> StreamsMember:
    before = member.assigned
    copies = before.standby | before.warmup
    # A copy that is to become active stays a copy until the active task is free. The member does not give it back.
    promoted = copies & target.active
    # An active task that is to become a copy keeps its state. The copy starts at once, while the active task is given
    # back.
    converted = Tasks(
        standby=target.standby & (before.active | before.warmup),
        warmup=target.warmup & (before.active | before.standby),
    )
    revoked = Tasks(
        before.active - target.active,
        before.standby - target.standby - promoted - converted.warmup,
        before.warmup - target.warmup - promoted - converted.standby,
    )
    kept = Tasks(*(mine & wanted for mine, wanted in zip(before, target, strict=True))).united(converted)
    missing = Tasks(*(wanted - mine for mine, wanted in zip(kept, target, strict=True)))
    granted = Tasks(*(frozenset(filter(is_free, tasks)) for is_free, tasks in zip(free, missing, strict=True)))
    if _still_has(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            previous_epoch=_previous(member, epoch),
            epoch=epoch,
            assigned=kept.united(_among(before, promoted)),
            pending_revocation=revoked,
            assignment_epochs=_epochs(member, target_epoch, kept.active | revoked.active),
        )
    assigned = kept.united(granted).united(_among(before, promoted - granted.active))
    return replace(
        member,
        state=MemberState.UNRELEASED if granted != missing else MemberState.STABLE,
        previous_epoch=_previous(member, target_epoch),
        epoch=target_epoch,
        assigned=assigned,
        pending_revocation=NONE,
        assignment_epochs=_epochs(member, target_epoch, assigned.active),
    )


def _previous(member: StreamsMember, epoch: int) -> int:
    return member.epoch if epoch != member.epoch else member.previous_epoch


def _among(tasks: Tasks, wanted: frozenset[Task]) -> Tasks:
    """Return the wanted copies that are among the tasks, in their present roles."""
    return Tasks(NO_TASKS, tasks.standby & wanted, tasks.warmup & wanted)


def _epochs(member: StreamsMember, epoch: int, tasks: frozenset[Task]) -> Mapping[Task, int]:
    """Return the assignment epochs of active tasks. A task of the member keeps its epoch; a new one gets `epoch`."""
    return dict(_each_epoch(member, epoch, tasks))


def _each_epoch(member: StreamsMember, epoch: int, tasks: frozenset[Task]) -> Iterator[tuple[Task, int]]:
    for task in tasks:
        yield task, member.assignment_epochs.get(task, epoch) if task in member.assigned.active else epoch
