"""Members of streams groups as Kafka Streams plays them: they run their assigned tasks and give the others back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groups_playbook import GROUP, Call, Playbook

from klamm import ErrorCode
from klamm_broker.groups.streams.requests import StatusCode, StreamsHeartbeat, StreamsHeartbeatResult
from klamm_broker.groups.streams.tasks import NONE
from klamm_broker.groups.streams.topology import InternalTopic, Subtopology, Topology

FIRST = 2
"""The epoch of a group's first assignment. A new group begins with 1, and its first member is a change."""
READS_T = Topology(0, (Subtopology("0", ("t",)),))
COUNTS_T = Topology(0, (Subtopology("0", ("t",), changelog_topics=(InternalTopic("counts-changelog"),)),))


def tasks(*partitions: int, subtopology_id: str = "0") -> frozenset[tuple[str, int]]:
    """Return tasks of one subtopology."""
    return frozenset((subtopology_id, partition) for partition in partitions)


class InternalTopics:
    """Creates the internal topics of a playbook at once. `refusal` is its answer."""

    def __init__(self, play: Playbook) -> None:
        self._play = play
        self.refusal = ""

    def __call__(self, topics: Mapping[str, InternalTopic]) -> str:
        for name, topic in topics.items():
            if not self.refusal:
                self._play.topics.set(name, topic.partitions)
        return self.refusal


class StreamsClient:
    """A client that accepts each assignment at once. `joining` has the fields with which it joins."""

    def __init__(self, play: Playbook, member_id: str, **joining: Any) -> None:
        self.play = play
        self.member_id = member_id
        self.epoch = 0
        self.endpoint_epoch = 0
        self.owned = NONE
        self.statuses: set[StatusCode] = set()
        topology, process_id = joining.pop("topology", READS_T), joining.pop("process_id", f"process of {member_id}")
        self.instance = {key: joining[key] for key in ("instance_id",) if key in joining}
        self.joining = {"rebalance_timeout_ms": 60_000, "topology": topology, "process_id": process_id, **joining}

    def ask(self, **changes: Any) -> Call[StreamsHeartbeatResult]:
        """Send one heartbeat, and do not wait for the answer."""
        if self.epoch == 0:
            self.owned = NONE
            changes = {**self.joining, **changes}
        values = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "epoch": self.epoch,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "owned": self.owned,
            "endpoint_epoch": self.endpoint_epoch,
            **self.instance,
            **changes,
        }
        call: Call[StreamsHeartbeatResult] = Call()
        self.play.coordinator.streams.heartbeat(StreamsHeartbeat(**values), call)
        return call

    def beat(self, **changes: Any) -> StreamsHeartbeatResult:
        """Send one heartbeat. Without other arguments the member reports the tasks that it has."""
        call = self.ask(**changes)
        self.play.settle()
        result = call.result
        if result.error_code is ErrorCode.NONE:
            self.epoch, self.endpoint_epoch = result.epoch, result.endpoint_epoch
            self.statuses = {status.code for status in result.statuses}
            if result.assignment is not None:
                self.owned = result.assignment
        return result

    def leave(self, epoch: int = -1) -> StreamsHeartbeatResult:
        call = self.ask(epoch=epoch, owned=None, topology=None)
        self.play.settle()
        return call.result


def settle(*clients: StreamsClient) -> None:
    """Let all members send heartbeats until nothing changes."""
    for _ in range(20):
        before = [(each.epoch, each.owned) for each in clients]
        for each in clients:
            assert each.beat().error_code is ErrorCode.NONE
        if before == [(each.epoch, each.owned) for each in clients]:
            return
    raise AssertionError("the group does not settle")


def active(*clients: StreamsClient) -> list[int]:
    """Return the numbers of the active tasks."""
    return [len(each.owned.active) for each in clients]
