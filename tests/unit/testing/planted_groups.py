"""Faults of groups that can be planted in the klamm of one process.

If the checker finds a fault here, it would also find it in klamm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.consumer import assignment, reconciliation
from klamm_broker.groups.consumer.assignment import TargetAssignment
from klamm_broker.groups.consumer.group import ConsumerGroup
from klamm_broker.groups.group import OffsetBook
from klamm_broker.groups.rebalance import Rebalancer
from klamm_broker.groups.streams import assignment as streams_assignment
from klamm_broker.groups.streams.group import StreamsGroup
from klamm_broker.groups.targeted_members import TargetedMembers
from klamm_broker.share.partition import Limits, SharePartition
from klamm_broker.share.record_state import ACKNOWLEDGED, AVAILABLE, RecordState
from klamm_broker.share.run import Run

_CHOOSE = Random(0)


def _sometimes(chance: float = 0.15) -> bool:
    return _CHOOSE.random() < chance


def _replace(owner: Any, name: str, build: Callable[[Any], Any]) -> None:
    setattr(owner, name, build(getattr(owner, name)))


def accept_a_commit_of_a_fenced_member() -> None:
    for kind in (ClassicGroup, TargetedMembers):
        _replace(kind, "validate_commit", lambda _validate: lambda *_given: None)


def keep_the_generation() -> None:
    def build(begin: Any) -> Any:
        def faulty(group: ClassicGroup) -> None:
            before = group.generation_id
            begin(group)
            if before and _sometimes():
                group.generation_id = before

        return faulty

    _replace(ClassicGroup, "init_next_generation", build)


def keep_the_epoch() -> None:
    def build(begin: Any) -> Any:
        def faulty(target: TargetAssignment, group: ConsumerGroup) -> None:
            if group.assignment_epoch and _sometimes(0.7):
                # There is a new target for the epoch of the members.
                group.assignment_epoch = group.epoch - 1
            else:
                begin(target, group)

        return faulty

    _replace(TargetAssignment, "begin_epoch", build)


def send_the_leaders_assignment_to_all() -> None:
    def build(store: Any) -> Any:
        def faulty(rebalancer: Rebalancer, group: Any, leader: Any, assignments: Mapping[str, bytes]) -> None:
            if _sometimes():
                assignments = dict.fromkeys(assignments, assignments.get(leader.member_id, b""))
            store(rebalancer, group, leader, assignments)

        return faulty

    _replace(Rebalancer, "store_assignments", build)


def assign_a_partition_twice() -> None:
    def build(assign: Any) -> Any:
        def faulty(members: Any, counts: Any) -> Any:
            found = assign(members, counts)
            return dict.fromkeys(found, found[min(found)]) if found and _sometimes() else found

        return faulty

    assign_a_partition_before_it_is_released()
    _replace(assignment, "ASSIGNORS", lambda known: {name: build(each) for name, each in known.items()})


def assign_a_partition_before_it_is_released() -> None:
    def build(step: Any) -> Any:
        def faulty(member: Any, epoch: int, target_epoch: int, target: Any, _is_owned: Any, owned: Any) -> Any:
            return step(member, epoch, target_epoch, target, lambda *_place: False, owned)

        return faulty

    _replace(reconciliation, "_step_from", build)


def assign_a_task_before_it_is_released() -> None:
    _replace(StreamsGroup, "free_for", lambda _free_for: lambda *_given: (lambda _task: True,) * 3)


def assign_a_task_twice() -> None:
    def build(assign: Any) -> Any:
        def faulty(spec: Any) -> Any:
            found = assign(spec)
            return dict.fromkeys(found, found[min(found)]) if found and _sometimes() else found

        return faulty

    assign_a_task_before_it_is_released()
    _replace(streams_assignment, "assign_sticky", build)


def forget_a_commit() -> None:
    def build(put: Any) -> Any:
        def faulty(book: OffsetBook, commits: Sequence[Any], *reserved: Any) -> None:
            put(book, () if _sometimes() else commits, *reserved)

        return faulty

    _replace(OffsetBook, "put", build)


def release_what_a_member_holds() -> None:
    def build(acquire: Any) -> Any:
        def faulty(partition: SharePartition, member_id: str, *given: Any, limits: Limits, **options: Any) -> Any:
            for run in list(partition.runs):
                if run.member_id not in ("", member_id) and _sometimes():
                    partition.release(run.member_id, limits)
            return acquire(partition, member_id, *given, limits=limits, **options)

        return faulty

    _replace(SharePartition, "acquire", build)


def forget_a_delivery() -> None:
    def build(leave: Any) -> Any:
        def faulty(partition: SharePartition, run: Run, *given: Any, **options: Any) -> None:
            count = run.delivery_count - _sometimes()
            leave(partition, replace(run, delivery_count=count), *given, **options)

        return faulty

    _replace(SharePartition, "_leave", build)


def deliver_what_was_accepted() -> None:
    def build(leave: Any) -> Any:
        def faulty(partition: SharePartition, run: Run, target: RecordState, *given: Any, **options: Any) -> None:
            leave(partition, run, AVAILABLE if target is ACKNOWLEDGED and _sometimes() else target, *given, **options)

        return faulty

    _replace(SharePartition, "_leave", build)


def leave_out_a_record() -> None:
    def build(acquire: Any) -> Any:
        def faulty(partition: SharePartition, member_id: str, offset: int, batches: Any, **options: Any) -> Any:
            if batches and batches[0].first > partition.end_offset and _sometimes():
                partition._extend_over_gap(batches[0].first + 1)
            return acquire(partition, member_id, offset, batches, **options)

        return faulty

    _replace(SharePartition, "acquire", build)


FAULTS: dict[Callable[[], None], frozenset[str]] = {
    accept_a_commit_of_a_fenced_member: frozenset({"fenced_commit"}),
    keep_the_generation: frozenset({"double_owner"}),
    keep_the_epoch: frozenset({"double_owner"}),
    send_the_leaders_assignment_to_all: frozenset({"double_owner"}),
    assign_a_partition_twice: frozenset({"double_owner"}),
    assign_a_partition_before_it_is_released: frozenset({"fenced_commit"}),
    assign_a_task_twice: frozenset({"double_owner"}),
    assign_a_task_before_it_is_released: frozenset({"fenced_commit"}),
    forget_a_commit: frozenset({"not_linearizable"}),
    release_what_a_member_holds: frozenset({"double_acquisition"}),
    forget_a_delivery: frozenset({"delivery_count"}),
    deliver_what_was_accepted: frozenset({"delivered_again"}),
    leave_out_a_record: frozenset({"lost_delivery"}),
}
"""Each fault with its anomalies. The checker must name at least one of them."""
