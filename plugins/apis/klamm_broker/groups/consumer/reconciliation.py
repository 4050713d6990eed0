"""One step of a member towards its target assignment; follows Kafka's `CurrentAssignmentBuilder`. `TargetAssignment`
calls `next_step` at each heartbeat, with the group's lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.consumer.member import NO_PARTITIONS, AssignmentEpochs, ConsumerMember
from klamm_broker.groups.targeted_members import MemberState


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[bytes, int], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    """Return the member after one step.

    A member first revokes the partitions that are not in its target, at its current epoch. Then the member enters the
    target epoch and is assigned the free partitions of its target. Partitions that other members still own follow
    later. `is_owned` returns True if any member owns a partition. `owned` are the partitions that the member reports as
    its own, or None.
    """
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return member
        return _step_from(member, member.epoch, target_epoch, target, is_owned, owned)
    if member.state is MemberState.UNREVOKED:
        if _holds(owned, member.pending_revocation):
            return member
        return _step_from(member, member.epoch + 1, target_epoch, target, is_owned, owned)
    return _step_from(member, member.epoch, target_epoch, target, is_owned, owned)


def _holds(owned: Partitions | None, revoked: Partitions) -> bool:
    """Return True if the member may still own some of these partitions, or does not report its partitions."""
    if owned is None:
        return True
    return any(not indexes.isdisjoint(owned.get(topic, ())) for topic, indexes in revoked.items())


def _step_from(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[bytes, int], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    kept: dict[bytes, frozenset[int]] = {}
    revoked: dict[bytes, frozenset[int]] = {}
    free: dict[bytes, frozenset[int]] = {}
    awaits = False
    none: frozenset[int] = frozenset()
    for topic in sorted(target.keys() | member.assigned.keys()):
        wanted, present = target.get(topic, none), member.assigned.get(topic, none)
        missing = wanted - present
        taken = frozenset(index for index in missing if is_owned(topic, index))
        awaits = awaits or bool(taken)
        for parts, indexes in ((kept, present & wanted), (revoked, present - wanted), (free, missing - taken)):
            if indexes:
                parts[topic] = indexes
    if revoked and _holds(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            previous_epoch=member.epoch,
            epoch=epoch,
            assigned=kept,
            pending_revocation=revoked,
            assignment_epochs=_epochs(member, target_epoch, kept, revoked),
        )
    return replace(
        member,
        state=MemberState.UNRELEASED if awaits else MemberState.STABLE,
        previous_epoch=member.epoch,
        epoch=target_epoch,
        assigned={topic: kept.get(topic, none) | free.get(topic, none) for topic in sorted(kept.keys() | free.keys())},
        pending_revocation=NO_PARTITIONS,
        assignment_epochs=_epochs(member, target_epoch, kept, free),
    )


def _epochs(member: ConsumerMember, epoch: int, *parts: Partitions) -> AssignmentEpochs:
    """Return the assignment epochs of the partitions. A partition that the member had keeps its epoch; a new one gets
    `epoch`.
    """
    epochs: dict[bytes, dict[int, int]] = {}
    for topic, indexes in (each for partitions in parts for each in partitions.items()):
        known, assigned = member.assignment_epochs.get(topic, {}), member.assigned.get(topic, frozenset())
        epochs.setdefault(topic, {}).update(
            (index, known.get(index, epoch) if index in assigned else epoch) for index in indexes
        )
    return epochs
