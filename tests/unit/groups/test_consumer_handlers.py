"""Tests of the handlers of consumer groups, through the wire format of every version."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consumers import FIRST
from groups_playbook import GROUP, Playbook, topic_id
from test_handlers import Desk, through_the_wire

from klamm import ErrorCode, KafkaError
from klamm.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.list_groups import ListGroupsRequest
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

VERSIONS = [0, 1]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    play = Playbook(tmp_path / "klamm.db")
    play.topics.set("t", 2)
    desk = Desk(play)
    desk.broker.topics = play.topics
    yield desk
    play.close()


def joining(member_id: str = "m", **fields: Any) -> ConsumerGroupHeartbeatRequest:
    fields = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 1000, "topic_partitions": [], **fields}
    return ConsumerGroupHeartbeatRequest(GROUP, member_id, 0, **fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_heartbeat_returns_an_assignment(desk: Desk, version: int) -> None:
    response = through_the_wire(desk.ask(joining(), version), version)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", FIRST)
    assert response.heartbeat_interval_ms == 5_000
    (assigned,) = response.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic_id("t"), [0, 1])
    owned = [RequestTopicPartitions(topic_id("t"), [0]), RequestTopicPartitions(topic_id("t"), [1])]
    again = desk.ask(ConsumerGroupHeartbeatRequest(GROUP, "m", FIRST, topic_partitions=owned), version)
    assert (again.error_code, again.assignment) == (0, None)
    fenced = through_the_wire(desk.ask(ConsumerGroupHeartbeatRequest(GROUP, "m", 9), version), version)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch" in fenced.error_message


def test_from_version_1_on_clients_make_member_ids(desk: Desk) -> None:
    assert desk.ask(joining(""), 0).member_id
    assert desk.ask(joining(""), 1).error_code == ErrorCode.INVALID_REQUEST


def test_version_1_has_regular_expressions(desk: Desk) -> None:
    request = joining(subscribed_topic_names=None, subscribed_topic_regex="t|u")
    assert desk.ask(request, 1).assignment.topic_partitions[0].partitions == [0, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_describe_returns_state_and_members(desk: Desk, version: int) -> None:
    desk.ask(joining(instance_id="i", rack_id="r", subscribed_topic_names=["t", "u"]), version)
    request = ConsumerGroupDescribeRequest([GROUP, "other", ""], include_authorized_operations=True)
    found, unknown, empty = through_the_wire(desk.ask(request, version), version).groups
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (
        0,
        "Stable",
        FIRST,
        FIRST,
    )
    assert found.assignor_name == "uniform"
    assert found.authorized_operations != -(2**31)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", FIRST)
    assert (member.client_id, member.client_host) == ("client", "/10.0.0.5")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t", "u"], "")
    for assignment in (member.assignment, member.target_assignment):
        (assigned,) = assignment.topic_partitions
        assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (topic_id("t"), "t", [0, 1])
    assert member.member_type == (1 if version else -1)
    assert (unknown.error_code, unknown.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "other")
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("switch", ["setting", "feature"])
def test_without_the_protocol_the_apis_are_not_served(desk: Desk, switch: str) -> None:
    if switch == "setting":
        desk.broker.settings = types.SimpleNamespace(group_coordinator_rebalance_protocols=("classic",))
    else:
        desk.broker.features = types.SimpleNamespace(level=lambda _name: 0)
    for request in (joining(), ConsumerGroupDescribeRequest([GROUP])):
        with pytest.raises(KafkaError) as refused:
            desk.ask(request, 1)
        assert refused.value.error_code is ErrorCode.UNSUPPORTED_VERSION


def test_other_group_apis_show_consumer_groups(desk: Desk) -> None:
    desk.ask(joining(), 1)
    (listed,) = desk.ask(ListGroupsRequest(types_filter=["Consumer"]), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == (GROUP, "consumer", "Stable")
    assert listed.group_type == "consumer"
    assert desk.ask(ListGroupsRequest(types_filter=["classic"]), 5).groups == []
    assert desk.ask(ListGroupsRequest(states_filter=["empty"]), 5).groups == []
    (dead,) = desk.ask(DescribeGroupsRequest([GROUP]), 6).groups
    assert (dead.error_code, dead.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert dead.error_message == f"Group {GROUP} is not a classic group."
    (dead,) = desk.ask(DescribeGroupsRequest([GROUP]), 5).groups
    assert (dead.error_code, dead.group_state) == (0, "Dead")
    groups = [
        OffsetFetchRequestGroup(GROUP, "m", FIRST),
        OffsetFetchRequestGroup(GROUP, "m", 7),
        OffsetFetchRequestGroup(GROUP),
    ]
    fetched = desk.ask(OffsetFetchRequest(groups=groups), 9).groups
    assert [group.error_code for group in fetched] == [0, ErrorCode.STALE_MEMBER_EPOCH, 0]
