"""Steps of streams groups. The outcomes of each step are compared between two servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from klamm.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from klamm.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    RequestEndpoint,
    RequestTaskIds,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from klamm.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.interop.beside_kafka.comparison import Case

Step = tuple[str, Any]
GROUP, TOPIC, OTHER = "streamers", "streamed", "streamed-too"
PARTITIONS = 2
"""The number of partitions of TOPIC. OTHER has one more."""
PATIENCE_S = 20
# Clients send back the epoch of endpoints. Kafka counts it from the second heartbeat of a group.
_NOT_COMPARED = ("throttle_time_ms", "endpoint_information_epoch")
JOIN = {"rebalance_timeout_ms": 60_000, "client_tags": []}
NOTHING: dict[str, list[RequestTaskIds]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def reads(*topics: str, **more: Any) -> Topology:
    """Return a topology with one subtopology."""
    return Topology(0, [Subtopology("0", [*topics], **more)])


def plain(value: Any) -> Any:
    """Return a message as plain values, which can be compared and printed."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    slots = [slot for slot in getattr(type(value), "__slots__", ()) if slot not in _NOT_COMPARED]
    return {slot: plain(getattr(value, slot)) for slot in slots} if slots else value


UNCONFIGURED = Case(
    "StreamsGroupHeartbeat: an endpoint, and no topics",
    lambda version, ids: StreamsGroupHeartbeatRequest(
        "endpoints",
        "m",
        0,
        0,
        **JOIN,
        **NOTHING,
        process_id="p",
        topology=reads("no-such-topic"),
        user_endpoint=RequestEndpoint("h", 80),
    ),
    differs="A member with an endpoint",
)


class StreamsSteps:
    """The steps on one server whose streams groups have no delays."""

    def __init__(self, target: Any) -> None:
        self._ask = target.client.call
        self._epochs: dict[str, int] = {}
        self._endpoint_epochs: dict[str, int] = {}

    def _beat(self, member: str, epoch: int | None = None, group: str = GROUP, **fields: Any) -> Any:
        known = self._epochs.get(member, 0) if epoch is None else epoch
        endpoints = self._endpoint_epochs.get(member, 0)
        answer = self._ask(StreamsGroupHeartbeatRequest(group, member, known, endpoints, **fields), 1)
        if answer.error_code == 0:
            self._epochs[member] = answer.member_epoch
            self._endpoint_epochs[member] = answer.endpoint_information_epoch
        return answer

    def _join(self, member: str, topology: Topology, group: str = GROUP, **fields: Any) -> Any:
        process = {"process_id": f"process-{member}"}
        return plain(self._beat(member, 0, group, topology=topology, **{**JOIN, **NOTHING, **process, **fields}))

    def _owning(self, member: str, *partitions: int, **fields: Any) -> Any:
        owned = {**NOTHING, "active_tasks": [RequestTaskIds("0", [*partitions])]}
        return plain(self._beat(member, **{**owned, **fields}))

    def _until(self, member: str, is_there: Callable[[Any], bool], **fields: Any) -> Any:
        """Send heartbeats until the server sees a topic, which may take a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(answer := self._beat(member, **fields)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return plain(answer)

    def _commit(self, member: str, epoch: int, version: int = 10, partition: int = 0) -> int:
        (topic,) = self._ask(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12).topics
        offsets = [OffsetCommitRequestPartition(partition, 7)]
        name = {"topic_id": topic.topic_id} if version > 9 else {"name": TOPIC}
        committed = OffsetCommitRequestTopic(partitions=offsets, **name)
        answer = self._ask(OffsetCommitRequest(GROUP, epoch, member, None, topics=[committed]), version)
        return int(answer.topics[0].partitions[0].error_code)

    def _described(self, group: str = GROUP) -> Any:
        (described,) = self._ask(StreamsGroupDescribeRequest([group], False, True), 1).groups
        described.members.sort(key=lambda member: member.member_id)
        return plain(described)

    def run(self) -> Iterator[Step]:
        """Run all steps in order."""
        # Kafka's coordinator sees new topics a moment later.
        topics = {"group": "watchers", "process_id": "w", "topology": reads(TOPIC, OTHER), **JOIN, **NOTHING}
        self._until("w", lambda answer: answer.error_code == 0 and not answer.status, epoch=0, **topics)
        yield from self._members()
        yield from self._offsets()
        yield from self._refused()
        yield from self._ends()
        yield from self._topologies()
        for version in (0, 1):
            fields = {**JOIN, **NOTHING, "process_id": "p", "topology": reads(TOPIC)}
            request = StreamsGroupHeartbeatRequest("versions", "m", 0, 0, **fields)
            yield f"version {version}", plain(self._ask(request, version))

    def _members(self) -> Iterator[Step]:
        static = {"instance_id": "i"}
        yield "joins", self._join("a", reads(TOPIC), **static, user_endpoint=RequestEndpoint("h", 80))
        yield "has no change", plain(self._beat("a", **static))
        yield "an instance that has not left", self._join("b", reads(TOPIC), **static)
        yield "another's instance", plain(self._beat("b", 1, **static))
        yield "an unknown instance", plain(self._beat("b", 1, instance_id="j"))
        yield "leaves without an instance", plain(self._beat("a", -2))
        yield "leaves for a while", plain(self._beat("a", -2, **static))
        yield "comes back", self._join("b", reads(TOPIC), **static, process_id="process-a")
        self._ask(CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, PARTITIONS + 1, None)], 5_000, False), 3)
        before = self._epochs["b"]
        yield "the topic grows", self._until("b", lambda answer: answer.member_epoch > before, **static)
        yield "another joins", self._join("c", reads(TOPIC), rack_id="r")
        yield "keeps all", self._owning("b", 0, 1, 2, **static)
        yield "waits", plain(self._beat("c"))
        yield "gives one back", self._owning("b", 0, 1, **static)
        yield "gets it", plain(self._beat("c"))
        yield "is described", self._described()

    def _offsets(self) -> Iterator[Step]:
        epoch = self._epochs["b"]
        yield "commits in its epoch", self._commit("b", epoch)
        yield "with an earlier one", self._commit("b", epoch - 1)
        yield "before the assignment", self._commit("c", epoch - 1, partition=2)
        yield "with a later one", self._commit("b", 99)
        yield "commits what it has not", self._commit("b", epoch - 1, partition=2)
        yield "an unknown member commits", self._commit("x", epoch)
        yield "without a member", self._commit("", -1)
        yield "in an old version", self._commit("b", epoch, version=8)
        yield "by name", self._commit("b", epoch, version=9)

    def _refused(self) -> Iterator[Step]:
        static = {"instance_id": "i"}
        yield "a later epoch", plain(self._beat("c", 99))
        yield "an earlier epoch", plain(self._beat("c", 1))
        yield "an unknown member", plain(self._beat("x", 1))
        yield "a group that does not exist", plain(self._beat("x", 1, "missing-group"))
        yield "leaving one", plain(self._beat("x", -1, "missing-group"))
        yield "no group", plain(self._beat("x", 1, ""))
        yield "no member", plain(self._beat(" ", 1))
        yield "an odd epoch", plain(self._beat("c", -3))
        yield "some roles", plain(self._beat("c", active_tasks=[]))
        yield "a topology later", plain(self._beat("c", topology=reads(TOPIC)))
        yield "an unknown task", self._owning("c", 9)
        yield (
            "an unknown subtopology",
            plain(self._beat("c", **{**NOTHING, "standby_tasks": [RequestTaskIds("7", [0])]})),
        )
        yield "without a timeout", self._join("x", reads(TOPIC), rebalance_timeout_ms=-1)
        yield "with tasks", self._join("x", reads(TOPIC), active_tasks=[RequestTaskIds("0", [0])])
        yield "another topology", self._join("x", reads(OTHER))
        yield (
            "a description",
            plain(self._ask(StreamsGroupTopologyDescriptionUpdateRequest(GROUP, "c", 0, TopologyDescription()), 0)),
        )
        yield "shuts down", plain(self._beat("c", shutdown_application=True))
        yield "is to shut down", plain(self._beat("b", **static))
        yield (
            "a classic member",
            self._ask(
                JoinGroupRequest(GROUP, 10_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]),
                5,
            ).error_code,
        )
        yield "is not deleted", plain(self._ask(DeleteGroupsRequest([GROUP]), 2))

    def _ends(self) -> Iterator[Step]:
        yield "leaves", plain(self._beat("c", -1))
        yield "leaves again", plain(self._beat("c", -1))
        yield "the last leaves", plain(self._beat("b", -1, instance_id="i"))
        yield "is empty", self._described()
        yield "is deleted", plain(self._ask(DeleteGroupsRequest([GROUP]), 2))
        yield "is gone", self._described()

    def _topologies(self) -> Iterator[Step]:
        def topology(**fields: Any) -> Topology:
            return reads(TOPIC, **fields)

        join = self._join
        yield "missing sources", join("m", reads("no-such-topic"), "streamers-1")
        together = reads(TOPIC, OTHER, copartition_groups=[CopartitionGroup([0, 1])])
        yield "sources of the same size", join("m", together, "streamers-2")
        yield "a sized changelog", join("m", topology(state_changelog_topics=[TopicInfo("c", 3)]), "streamers-3")
        yield "a wrong name", join("m", reads("a b"), "streamers-3")
        yield "Kafka's own topic", join("m", reads("__consumer_offsets"), "streamers-3")
        unused = topology(repartition_source_topics=[TopicInfo("r")])
        yield "a repartition topic without a writer", join("m", unused, "streamers-3")
        yield "an expression", join("m", topology(source_topic_regex=["t.*"]), "streamers-3")
        counts = topology(state_changelog_topics=[TopicInfo("streamers-4-changelog", 0, 1)])
        yield "internal topics", join("m", counts, "streamers-4")
        there = self._until("m", lambda answer: not answer.status, group="streamers-4")
        yield "are created", {key: there[key] for key in ("error_code", "status")}
        described = self._described("streamers-4")
        yield "and described", (described["group_state"], described["topology"])
