"""Tests of streams groups through the wire format: internal topics, description, administration, features, configs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from klamm.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    RequestEndpoint,
    RequestTaskIds,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from klamm.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from klamm.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm_broker.broker_settings import BrokerSettings
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.streams_requests import join
from tests.unit.broker.test_authorization import guard

VERSION = 1
NOT_REQUESTED, NOT_STORED = 0, 1
# Subtopology 0 reads t and writes the repartition topic. Subtopology 1 reads that topic and has state.
COUNTS = Topology(
    3,
    [
        Subtopology("0", ["t"], repartition_sink_topics=["g-repartition"]),
        Subtopology(
            "1",
            repartition_source_topics=[TopicInfo("g-repartition", 0, 0, [KeyValue("retention.ms", "-1")])],
            state_changelog_topics=[TopicInfo("g-changelog", 0, 1, [KeyValue("cleanup.policy", "compact")])],
            copartition_groups=[CopartitionGroup(repartition_source_topics=[0])],
        ),
    ],
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    harness = BrokerHarness(tmp_path)
    harness.open(group_streams_initial_rebalance_delay_ms=0, group_streams_assignment_interval_ms=0)
    harness.create_topic("t", 3)
    yield harness
    harness.broker.close()


def ask(harness: BrokerHarness, request: StreamsGroupHeartbeatRequest) -> Any:
    """Send one heartbeat. The internal topics that it creates exist on return."""
    reply = harness.send(request, VERSION)
    harness.broker.store.write_and_wait([])
    harness.broker.auto_creation.wait()
    return reply.response


def ready(harness: BrokerHarness) -> Any:
    """Return a member whose group has all its topics, with its first assignment."""
    first = ask(harness, join("g", topology=COUNTS, user_endpoint=RequestEndpoint("h", 80)))
    assert [status.status_code for status in first.status] == [3]
    return ask(harness, StreamsGroupHeartbeatRequest("g", "m", first.member_epoch))


def test_internal_topics_are_created_as_the_topology_describes_them(harness: BrokerHarness) -> None:
    answer = ready(harness)
    assert answer.error_code == 0
    assert {each.subtopology_id: each.partitions for each in answer.active_tasks} == {"0": [0, 1, 2], "1": [0, 1, 2]}
    assert (answer.standby_tasks, answer.warmup_tasks, answer.status) == ([], [], [])
    assert (answer.heartbeat_interval_ms, answer.task_offset_interval_ms) == (5_000, 60_000)
    assert (answer.acceptable_recovery_lag, answer.topology_description_required) == (10_000, False)
    (endpoint,) = answer.partitions_by_user_endpoint
    assert {each.topic: each.partitions for each in endpoint.active_partitions} == {
        "g-repartition": [0, 1, 2],
        "t": [0, 1, 2],
    }
    topics = harness.broker.topics
    assert topics.get("g-changelog").overrides == {"cleanup.policy": "compact"}
    assert topics.get("g-repartition").overrides == {"retention.ms": "-1"}
    assert [len(topics.get(name).partitions) for name in ("g-changelog", "g-repartition")] == [3, 3]


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        (TopicInfo("g-changelog", 0, 0, [KeyValue("cleanup.policy", "x")]), "cleanup.policy"),
        (TopicInfo("g-changelog", 0, 3, []), "3 replicas"),
        (TopicInfo("g.changelog", 0, 0, []), "g_changelog"),
    ],
)
def test_topics_that_cannot_be_created_are_reported(harness: BrokerHarness, changelog: TopicInfo, problem: str) -> None:
    harness.create_topic("g_changelog")
    topology = Topology(0, [Subtopology("0", ["t"], state_changelog_topics=[changelog])])
    (status,) = ask(harness, join("g", topology=topology)).status
    assert f"Internal topics are missing: {changelog.name}; Creation failed: {changelog.name} (" in status.status_detail
    assert problem.lower() in status.status_detail.lower()
    assert harness.broker.topics.get(changelog.name) is None


def test_a_client_that_may_not_create_internal_topics_is_notified(harness: BrokerHarness) -> None:
    guard(harness, "allow User:* READ group:g", "allow User:* DESCRIBE topic:*")
    answer = ask(harness, join("g", topology=COUNTS))
    (status,) = answer.status
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics g-changelog, g-repartition.")
    assert harness.broker.topics.get("g-changelog") is None
    guard(harness, "allow User:* READ group:g", "allow User:* DESCRIBE topic:*", "allow User:* CREATE topic:*")
    ask(harness, StreamsGroupHeartbeatRequest("g", "m", answer.member_epoch))
    assert harness.broker.topics.get("g-changelog") is not None


def test_streams_groups_are_described(harness: BrokerHarness) -> None:
    (group,) = harness.call(StreamsGroupDescribeRequest(["g"]), VERSION).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    answer = ready(harness)
    offsets = [TaskOffset("1", 0, 7)]
    ask(harness, StreamsGroupHeartbeatRequest("g", "m", answer.member_epoch, task_offsets=offsets))
    described, empty = harness.call(StreamsGroupDescribeRequest(["g", ""], True), VERSION).groups
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Stable",
        answer.member_epoch,
        answer.member_epoch,
    )
    assert described.authorized_operations != -(2**31)
    assert (described.assignor_name, described.topology_description_status) == ("sticky", NOT_REQUESTED)
    first, second = described.topology.subtopologies
    assert (described.topology.epoch, first.source_topics) == (3, ["t"])
    (changelog,) = second.state_changelog_topics
    assert (changelog.name, changelog.partitions, changelog.replication_factor) == ("g-changelog", 3, 1)
    assert [(each.name, each.partitions) for each in second.repartition_source_topics] == [("g-repartition", 3)]
    (member,) = described.members
    assert (member.member_id, member.process_id, member.topology_epoch) == ("m", "process-m", 3)
    assert (member.user_endpoint.host, member.user_endpoint.port) == ("h", 80)
    assert [(each.subtopology_id, each.partition, each.offset) for each in member.task_offsets] == [("1", 0, 7)]
    assert member.assignment.active_tasks[0].partitions == [0, 1, 2]
    assert member.target_assignment.active_tasks[1].partitions == [0, 1, 2]


def test_the_group_keeps_no_description_of_its_topology(harness: BrokerHarness) -> None:
    answer = ready(harness)
    refused = harness.call(StreamsGroupTopologyDescriptionUpdateRequest("g", "m", 3, TopologyDescription()), 0)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert refused.error_message == "The broker has no streams group topology description plugin configured."
    (described,) = harness.call(StreamsGroupDescribeRequest(["g"], False, True), VERSION).groups
    assert (described.topology_description, described.topology_description_status) == (None, NOT_STORED)
    assert answer.error_code == described.error_code == 0


@pytest.mark.parametrize("source", ["missing", "t"])
def test_groups_without_their_topics_show_the_requested_topology(harness: BrokerHarness, source: str) -> None:
    parts = [
        Subtopology("0", [source], repartition_sink_topics=["g-repartition"]),
        Subtopology(
            "1",
            [],
            repartition_source_topics=[TopicInfo("g-repartition")],
            state_changelog_topics=[TopicInfo("g-changelog", 0, 1)],
        ),
    ]
    ask(harness, join("g", "m", source, topology=Topology(3, parts)))
    (described,) = harness.call(StreamsGroupDescribeRequest(["g"]), VERSION).groups
    first, second = described.topology.subtopologies
    assert (described.group_state, first.source_topics) == ("NotReady", [source])
    internal = [*second.state_changelog_topics, *second.repartition_source_topics]
    assert [(each.name, each.partitions) for each in internal] == [("g-changelog", 0), ("g-repartition", 0)]


def test_descriptions_do_not_disclose_topics(harness: BrokerHarness) -> None:
    ready(harness)
    guard(harness, "allow User:* DESCRIBE group:g", "allow User:* DESCRIBE topic:t")
    (described,) = harness.call(StreamsGroupDescribeRequest(["g"]), VERSION).groups
    assert (described.error_code, described.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"topology": Topology(0, [Subtopology("0", [], ["t.*"])])}, ErrorCode.INVALID_REQUEST),
        ({"topology": Topology(0, [Subtopology("0", ["__transaction_state"])])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        # Names of topics are checked first.
        (
            {"topology": Topology(0, [Subtopology("0", ["a b"])]), "rebalance_timeout_ms": -1},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
    ],
)
def test_invalid_requests_create_no_group(harness: BrokerHarness, changes: dict[str, Any], code: ErrorCode) -> None:
    assert ask(harness, join("g", "m", "t", **changes)).error_code == code
    assert harness.call(ListGroupsRequest(), 5).groups == []


def test_owned_tasks_of_a_subtopology_may_be_reported_in_several_entries(harness: BrokerHarness) -> None:
    first = ask(harness, join("g", "m", "t"))
    ask(harness, join("g", "n", "t"))
    owned = [RequestTaskIds("0", [0, 1]), RequestTaskIds("0", [2])]
    epoch = first.member_epoch
    more = {"standby_tasks": [], "warmup_tasks": []}
    answer = ask(harness, StreamsGroupHeartbeatRequest("g", "m", epoch, active_tasks=owned, **more))
    assert answer.member_epoch == epoch
    answer = ask(harness, StreamsGroupHeartbeatRequest("g", "m", epoch, active_tasks=owned[:1], **more))
    assert answer.member_epoch == epoch + 1


def test_streams_groups_are_listed_and_deleted(harness: BrokerHarness) -> None:
    ready(harness)
    (listed,) = harness.call(ListGroupsRequest([], ["streams"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("g", "streams", "Stable")

    def delete() -> int:
        reply = harness.send(DeleteGroupsRequest(["g"]), 2)
        harness.broker.store.write_and_wait([])
        return int(reply.response.results[0].error_code)

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    ask(harness, StreamsGroupHeartbeatRequest("g", "m", -1))
    assert delete() == 0
    harness.reopen()
    assert harness.call(ListGroupsRequest(), 5).groups == []


def test_streams_groups_survive_a_restart(harness: BrokerHarness) -> None:
    answer = ready(harness)
    harness.reopen()
    again = ask(harness, StreamsGroupHeartbeatRequest("g", "m", answer.member_epoch))
    assert (again.error_code, again.member_epoch, again.active_tasks) == (0, answer.member_epoch, None)


def test_streams_groups_can_be_switched_off(harness: BrokerHarness) -> None:
    off = UpdateFeaturesRequest(1000, [FeatureUpdateKey("streams.version", 0, upgrade_type=2)])
    assert harness.call(off, 2).error_code == 0
    assert ask(harness, join("g", "m", "t")).error_code == ErrorCode.UNSUPPORTED_VERSION
    (described,) = harness.call(StreamsGroupDescribeRequest(["g"]), VERSION).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_without_the_protocol_streams_apis_are_not_served(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(group_coordinator_rebalance_protocols=("classic", "consumer"))
    assert ask(harness, join("g", "m", "t")).error_code == ErrorCode.UNSUPPORTED_VERSION
    harness.broker.close()


def test_contradictory_settings_are_reported() -> None:
    def problems(**changes: Any) -> list[str]:
        return [key for key, _ in BrokerSettings(**changes).group_type_problems()]

    assert problems() == []
    assert problems(group_streams_session_timeout_ms=1) == [
        "group.streams.session.timeout.ms",
        "group.streams.heartbeat.interval.ms",
    ]
    assert problems(group_streams_min_heartbeat_interval_ms=20_000) == ["group.streams.min.heartbeat.interval.ms"]
    assert problems(group_streams_assignment_interval_ms=20_000) == ["group.streams.assignment.interval.ms"]
    assert problems(group_streams_num_standby_replicas=3) == ["group.streams.num.standby.replicas"]
    assert problems(group_streams_assignors=("range",)) == ["group.streams.assignors"]
    assert problems(group_streams_rack_aware_assignment_tags=("a", "a")) == ["group.streams.rack.aware.assignment.tags"]
