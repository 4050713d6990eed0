"""A member of a share group keeps what a heartbeat does not change, and counts each assigned partition."""

from __future__ import annotations

import pytest
from groups_playbook import GROUP, Playbook

from klamm_broker.groups import ShareHeartbeat
from klamm_broker.groups.consumer.member import PARTITION_BYTES


def beat(play: Playbook, epoch: int, topics: list[str] | None) -> int:
    epochs: list[int] = []
    request = ShareHeartbeat(GROUP, "m", epoch, "client", "/host", topics=topics)
    play.coordinator.shares.heartbeat(request, lambda result: epochs.append(result.epoch))
    play.settle()
    return epochs[0]


def test_a_heartbeat_without_topics_keeps_the_subscription(play: Playbook) -> None:
    play.topics.set("t", 1)
    beat(play, beat(play, 0, ["t"]), None)
    (member,) = play.coordinator.shares.describe(GROUP).members
    assert member.topics == {"t"}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_member_counts_each_partition_that_it_has_and_gets(play: Playbook, partitions: int) -> None:
    play.topics.set("t", partitions)
    beat(play, 0, ["t"])
    (member,) = play.coordinator.shares.describe(GROUP).members
    without = type(member)(member_id="m", epoch=member.epoch, client_id="client", topics=member.topics)
    assert sum(map(len, member.target.values())) == partitions
    held = sum(map(len, member.assigned.values()))
    assert member.charge_bytes - without.charge_bytes == PARTITION_BYTES * (partitions + held)
