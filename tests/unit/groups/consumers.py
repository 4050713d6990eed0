"""Members of consumer groups as clients play them: they own their assigned partitions and revoke the rest."""

from __future__ import annotations

from groups_playbook import Playbook, topic_id

from klamm import ErrorCode
from klamm_broker.groups.assignors import Partitions
from klamm_broker.groups.requests import EpochHeartbeatResult

FIRST = 2
"""The epoch of a group's first assignment. A new group begins with 1, and its first subscription is a change."""


def partitions(**by_topic: set[int]) -> Partitions:
    """Return partitions by topic id. The arguments are by topic name."""
    return {topic_id(name): frozenset(indexes) for name, indexes in by_topic.items()}


class Consumer:
    """A client that accepts each assignment at once."""

    def __init__(self, play: Playbook, member_id: str, **joining: object) -> None:
        self.play = play
        self.member_id = member_id
        self.epoch = 0
        self.owned: Partitions = {}
        self.joining = joining

    def beat(self, **changes: object) -> EpochHeartbeatResult:
        """Send one heartbeat. Without other arguments the member reports the partitions that it owns."""
        if self.epoch == 0:
            self.owned = {}
            changes = {**self.joining, **changes}
        elif "instance_id" in self.joining:
            changes = {"instance_id": self.joining["instance_id"], **changes}
        result = self.play.beat(self.member_id, self.epoch, **{"owned": self.owned, **changes})
        if result.error_code is ErrorCode.NONE:
            self.epoch = result.epoch
            if result.assignment is not None:
                self.owned = result.assignment
        return result

    def count(self) -> int:
        """Return the number of partitions that the member owns."""
        return sum(map(len, self.owned.values()))


def settle(*consumers: Consumer) -> None:
    """Let all members send heartbeats until nothing changes."""
    for _ in range(20):
        before = [(each.epoch, each.owned) for each in consumers]
        for each in consumers:
            assert each.beat().error_code is ErrorCode.NONE
        if before == [(each.epoch, each.owned) for each in consumers]:
            return
    raise AssertionError("the group does not settle")
