"""A member of a share group keeps the values that a heartbeat does not change, and counts its assigned partitions."""

from __future__ import annotations

import pytest
from groups_playbook import GROUP, Playbook

from klamm import ErrorCode
from klamm_broker.groups.consumer.member import PARTITION_BYTES
from klamm_broker.groups.requests import EpochHeartbeatResult, ShareHeartbeat


def answer(play: Playbook, epoch: int, topics: list[str] | None) -> EpochHeartbeatResult:
    results: list[EpochHeartbeatResult] = []
    request = ShareHeartbeat(GROUP, "m", epoch, "client", "/host", topics=topics)
    play.coordinator.shares.heartbeat(request, results.append)
    play.settle()
    return results[0]


def beat(play: Playbook, epoch: int, topics: list[str] | None) -> int:
    result = answer(play, epoch, topics)
    assert result.error_code is ErrorCode.NONE
    return result.epoch


def test_a_member_with_another_epoch_is_fenced(play: Playbook) -> None:
    play.topics.set("t", 1)
    epoch = beat(play, 0, ["t"])
    assert answer(play, epoch + 2, None).error_code is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(play, epoch, None) == epoch


def test_a_heartbeat_without_topics_keeps_the_subscription(play: Playbook) -> None:
    play.topics.set("t", 1)
    beat(play, beat(play, 0, ["t"]), None)
    (member,) = play.coordinator.shares.describe(GROUP).members
    assert member.topics == {"t"}


def test_the_assignment_is_sent_if_it_has_changed_or_the_heartbeat_is_full(play: Playbook) -> None:
    play.topics.set("t", 1)
    first = answer(play, 0, ["t"])
    assert first.assignment
    assert answer(play, first.epoch, None).assignment is None
    assert answer(play, first.epoch, ["t"]).assignment == first.assignment

    play.topics.set("t", 2)
    changed = answer(play, first.epoch, None)
    assert changed.assignment
    assert changed.assignment != first.assignment


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_member_counts_its_present_and_its_new_partitions(play: Playbook, partitions: int) -> None:
    play.topics.set("t", partitions)
    beat(play, 0, ["t"])
    (member,) = play.coordinator.shares.describe(GROUP).members
    without = type(member)(member_id="m", epoch=member.epoch, client_id="client", topics=member.topics)
    assert sum(map(len, member.target.values())) == partitions
    held = sum(map(len, member.assigned.values()))
    assert member.charge_bytes - without.charge_bytes == PARTITION_BYTES * (partitions + held)
