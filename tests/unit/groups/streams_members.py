"""Members of streams groups as Kafka Streams plays them: they have what they are assigned and give the rest back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groups_playbook import GROUP, Call, Playbook

from klamm import ErrorCode
from klamm_broker.groups.streams.requests import StatusCode, StreamsHeartbeat, StreamsHeartbeatResult
from klamm_broker.groups.streams.tasks import NONE
from klamm_broker.groups.streams.topology import InternalTopic, Subtopology, Topology

FIRST = 2
"""The epoch of a group's first assignment: a new group begins with 1, its first member is a change."""
READS_T = Topology(0, (Subtopology("0", ("t",)),))
COUNTS_T = Topology(0, (Subtopology("0", ("t",), changelog_topics=(InternalTopic("counts-changelog"),)),))


def tasks(*partitions: int, subtopology_id: str = "0") -> frozenset[tuple[str, int]]:
    """Tasks of one subtopology."""
    return frozenset((subtopology_id, partition) for partition in partitions)


class InternalTopics:
    """Creates the internal topics of a playbook at once; `refusal` is what it says."""

    def __init__(self, play: Playbook) -> None:
        self._play = play
        self.refusal = ""

    def __call__(self, topics: Mapping[str, InternalTopic]) -> str:
        for name, topic in topics.items():
            if not self.refusal:
                self._play.topics.set(name, topic.partitions)
        return self.refusal


class StreamsClient:
    """A client that takes over each assignment at once. `joining` is what it joins with."""

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
        """Send one heartbeat, and do not wait for its answer."""
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
        """One heartbeat; a member that does not know better reports what it has."""
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
    """Let all beat until nothing changes any more."""
    for _ in range(20):
        before = [(each.epoch, each.owned) for each in clients]
        for each in clients:
            assert each.beat().error_code is ErrorCode.NONE
        if before == [(each.epoch, each.owned) for each in clients]:
            return
    raise AssertionError("the group does not settle")


def active(*clients: StreamsClient) -> list[int]:
    """The numbers of active tasks."""
    return [len(each.owned.active) for each in clients]
