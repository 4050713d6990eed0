"""Faults of starts, static members and offsets in transactions that can be planted in the klamm of one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from klamm_broker.groups import persistence
from klamm_broker.groups.classic_group import ClassicGroup
from klamm_broker.groups.classic_membership import ClassicMembership
from klamm_broker.groups.group import CommittedOffset, Group, OffsetBook
from klamm_broker.groups.targeted_members import TargetedMembers
from klamm_broker.groups.transactional_offsets import TransactionalOffsets
from klamm_broker.log.manager import LogManager
from tests.unit.testing.planted_groups import _replace, _sometimes


def forget_the_offsets_at_a_start() -> None:
    def build(load: Any) -> Any:
        def faulty(*given: Any) -> Iterable[Group]:
            found = list(load(*given))
            for group in found:
                group.offsets.clear()
            return found

        return faulty

    _replace(persistence, "load", build)


def repeat_a_generation_after_a_start() -> None:
    def build(restore: Any) -> Any:
        def faulty(group: ClassicGroup, protocol_type: str | None, name: str | None, generation_id: int) -> None:
            restore(group, protocol_type, name, max(0, generation_id - 1))

        return faulty

    _replace(ClassicGroup, "restore", build)


def keep_a_static_member_that_was_replaced() -> None:
    def build(validate: Any) -> Any:
        def faulty(group: Any, member_id: str, instance_id: str | None = None) -> Any:
            return validate(group, group.static_members.get(instance_id, member_id), instance_id)

        return faulty

    _replace(ClassicMembership, "validate_member", build)
    _replace(TargetedMembers, "member", build)


def forget_the_offsets_of_a_transaction() -> None:
    def build(take: Any) -> Any:
        def faulty(book: OffsetBook, producer_id: int) -> Mapping[tuple[str, int], CommittedOffset]:
            found: Mapping[tuple[str, int], CommittedOffset] = take(book, producer_id)
            return {} if _sometimes() else found

        return faulty

    _replace(OffsetBook, "take_pending", build)


def commit_the_offsets_of_an_aborted_transaction() -> None:
    def build(end: Any) -> Any:
        def faulty(offsets: TransactionalOffsets, producer_id: int, *, committed: bool) -> Any:
            return end(offsets, producer_id, committed=committed or _sometimes())

        return faulty

    _replace(TransactionalOffsets, "ended", build)


def cut_the_logs_at_a_start() -> None:
    def build(scan: Any) -> Any:
        def faulty(manager: LogManager) -> None:
            for path in sorted(manager.data_dir.glob("[!_]*/*.log")):
                os.truncate(path, path.stat().st_size * 3 // 4)
            scan(manager)

        return faulty

    _replace(LogManager, "_scan_directory", build)


FAULTS: dict[Callable[[], None], frozenset[str]] = {
    forget_the_offsets_at_a_start: frozenset({"not_linearizable", "duplicate"}),
    repeat_a_generation_after_a_start: frozenset({"double_owner"}),
    keep_a_static_member_that_was_replaced: frozenset({"not_linearizable"}),
    forget_the_offsets_of_a_transaction: frozenset({"duplicate"}),
    commit_the_offsets_of_an_aborted_transaction: frozenset({"lost_write"}),
    cut_the_logs_at_a_start: frozenset({"lost_write", "inconsistent_offsets"}),
}
"""Each fault with its anomalies. The checker must name at least one of them."""
