"""Checks of consumer groups: a partition has one owner in each epoch, and a fenced member cannot commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from klamm.testing.histories.anomaly import Anomaly
from klamm.testing.histories.format import History, Kind, Operation


@dataclass(frozen=True, slots=True)
class _Ownership:
    """The ownership of a partition by a member: from the end of `owned` to the start of the operation that ends it.

    Both are positions of events.
    """

    member: str
    epoch: int
    operation: Operation
    until: int


def check_groups(history: History) -> list[Anomaly]:
    """Return all anomalies of members and their partitions.

    `owned` replaces the partitions that the member owned before. `revoked` ends the ownership of the partitions that it
    names, or of all if it names none.
    """
    owners = _owners(history)
    return [*_double_owners(owners), *_fenced_commits(history, owners)]


def _owners(history: History) -> dict[tuple[str, str], list[_Ownership]]:
    found: dict[tuple[str, str], list[_Ownership]] = defaultdict(list)
    current: dict[tuple[str, str], dict[str, Operation]] = defaultdict(dict)

    def close(member: tuple[str, str], partitions: list[str], at: int) -> None:
        for partition in partitions:
            owned = current[member].pop(partition, None)
            if owned is not None:
                ownership = _Ownership(member[1], owned.value["epoch"], owned, at)
                found[member[0], partition].append(ownership)

    for operation in history.of("owned", "revoked"):
        if operation.outcome is not Kind.OK:
            continue
        value = operation.value
        member = (value["group"], value["member"])
        if operation.function == "revoked":
            close(member, value["partitions"] or list(current[member]), operation.began)
            continue
        close(member, list(current[member]), operation.began)
        for partition in value["partitions"]:
            current[member][partition] = operation
    for member in list(current):
        close(member, list(current[member]), len(history.texts))
    return found


def _double_owners(owners: dict[tuple[str, str], list[_Ownership]]) -> Iterator[Anomaly]:
    for (group, partition), ownerships in owners.items():
        by_epoch: dict[int, list[_Ownership]] = defaultdict(list)
        for ownership in sorted(ownerships, key=lambda one: one.operation.ended):
            for other in by_epoch[ownership.epoch]:
                if other.member != ownership.member and ownership.operation.ended < other.until:
                    text = (
                        f"{partition} belongs to {other.member} and {ownership.member} of {group} "
                        f"in epoch {ownership.epoch}"
                    )
                    yield Anomaly.of("double_owner", text, [other.operation, ownership.operation])
            by_epoch[ownership.epoch].append(ownership)


def _fenced_commits(history: History, owners: dict[tuple[str, str], list[_Ownership]]) -> Iterator[Anomaly]:
    for operation in history.of("commit"):
        if operation.outcome is not Kind.OK:
            continue
        value = operation.value
        for partition in value["offsets"]:
            for ownership in owners.get((value["group"], partition), ()):
                later = ownership.epoch > value["epoch"] and ownership.operation.ended < operation.began
                if later and ownership.member != value["member"]:
                    text = (
                        f"{value['member']} committed {partition} in epoch {value['epoch']} of {value['group']}, after "
                        f"{ownership.member} had it in epoch {ownership.epoch}"
                    )
                    yield Anomaly.of("fenced_commit", text, [ownership.operation, operation])
                    break
