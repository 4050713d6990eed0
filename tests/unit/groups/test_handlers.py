"""Tests of the handlers of the group APIs, through the wire format of every version."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from groups_playbook import GROUP, INITIAL_DELAY_MS, SESSION_MS, Playbook, subscription

from klamm import (
    Address,
    ApiHandler,
    ConnectionContext,
    ErrorCode,
    KafkaError,
    ListenerContext,
    Pending,
    RequestContext,
)
from klamm.wire.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from klamm_broker.cluster.membership import Membership
from klamm_broker.cluster.view import ClusterView
from klamm_broker.handlers import k42_delete_groups
from klamm_broker.handlers.served_apis import APIS

TOPIC_ID = bytes(range(16))
NO_SUCH_ID = bytes(16)


@dataclass
class Topic:
    name: str
    id: bytes
    partitions: list[None]


class Topics:
    """Topics with one topic "t" of two partitions."""

    def __init__(self) -> None:
        self._topic = Topic("t", TOPIC_ID, [None, None])

    def get(self, name: str) -> Topic | None:
        return self._topic if name == self._topic.name else None

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._topic if topic_id == self._topic.id else None


@dataclass
class Responses:
    """The answers, after they passed through the wire format."""

    given: list[Any] = field(default_factory=list)

    def run_request(self, request: RequestContext, started_ns: int) -> int:
        raise AssertionError("handlers do not run requests")

    def respond(self, request: RequestContext, response: Any) -> None:
        self.given.append(through_the_wire(response, request.api_version))

    def close_connection(self, request: RequestContext, reason: str) -> None:
        raise AssertionError(reason)


def through_the_wire(message: Any, version: int) -> Any:
    return type(message).decode(version, message.encode(version))


class Desk:
    """Sends requests to the handlers."""

    def __init__(self, play: Playbook) -> None:
        self.play = play
        self.required: list[str] = []
        features = types.SimpleNamespace(level=lambda _name: 1)
        settings = types.SimpleNamespace(group_coordinator_rebalance_protocols=("classic", "consumer"))
        broker = types.SimpleNamespace(
            cluster=ClusterView(7, Membership(7, 1, None)),
            groups=play.coordinator,
            topics=Topics(),
            settings=settings,
            features=features,
            auto_creation=types.SimpleNamespace(require_internal=self.required.append),
        )
        self.broker: Any = broker
        self.handlers: dict[int, ApiHandler] = {int(api.api_key): api.bind(broker) for api in APIS}
        here = Address("0.0.0.0", 9092)
        listener = ListenerContext("public", here, Address("kafka.example.com", 9093))
        self.connection = ConnectionContext("1", listener, here, Address("10.0.0.5", 5_000))

    def send(self, request: Any, version: int) -> Responses:
        """Send a request, whose answer may come later."""
        responses = Responses()
        context = RequestContext(self.connection, responses, request.API_KEY, version, 1, "client")
        returned = self.handlers[request.API_KEY].handle(through_the_wire(request, version), context)
        if not isinstance(returned, Pending):
            responses.respond(context, returned)
        return responses

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its only answer."""
        responses = self.send(request, version)
        self.play.settle()
        (response,) = responses.given
        return response

    def join(self, version: int, member_id: str = "", **fields: Any) -> Responses:
        request = join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000 if version else -1,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol("range", subscription("t"))],
            **fields,
        )
        return self.send(request, version)

    def member(self, version: int) -> str:
        """Join a new group. Return the member id."""
        responses = self.join(version)
        if responses.given:
            assert responses.given[0].error_code == ErrorCode.MEMBER_ID_REQUIRED
            responses = self.join(version, responses.given[0].member_id)
        self.play.advance(INITIAL_DELAY_MS)
        member_id: str = responses.given[0].member_id
        return member_id

    def stable_member(self) -> str:
        """Join a new group and sync. Return the member id."""
        member_id = self.member(9)
        request = sync_group.SyncGroupRequest(
            GROUP,
            1,
            member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[sync_group.SyncGroupRequestAssignment(member_id, b"mine")],
        )
        assert self.ask(request, 5).assignment == b"mine"
        return member_id


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    play = Playbook(tmp_path / "klamm.db")
    yield Desk(play)
    play.close()


def versions(module: Any) -> list[int]:
    return list(module.VERSIONS)


def test_every_version_of_the_schemas_is_served(desk: Desk) -> None:
    for handler in desk.handlers.values():
        assert range(handler.min_version, handler.max_version + 1) == handler.module.VERSIONS, handler.name


@pytest.mark.parametrize("version", versions(join_group))
def test_join_group_in_every_version(desk: Desk, version: int) -> None:
    responses = desk.join(version)
    assert bool(responses.given) is (version >= 4), "from v4 the member id comes first"
    if responses.given:
        assert responses.given[0].error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert responses.given[0].protocol_name == (None if version >= 7 else "")
        responses = desk.join(version, responses.given[0].member_id)
    desk.play.advance(INITIAL_DELAY_MS)

    (response,) = responses.given
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
    assert response.leader == response.member_id
    assert response.members[0].metadata == subscription("t")
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    described = desk.play.coordinator.administration.describe(GROUP)
    assert described is not None
    assert (described.members[0].client_id, described.members[0].client_host) == ("client", "/10.0.0.5")


def test_join_group_v0_rebalances_within_the_session_timeout(desk: Desk) -> None:
    desk.member(0)
    group = desk.play.coordinator.registry.classic(GROUP)
    assert group is not None
    assert group.rebalance_timeout_ms == SESSION_MS


@pytest.mark.parametrize("version", versions(sync_group))
def test_sync_group_returns_the_assignment(desk: Desk, version: int) -> None:
    member_id = desk.member(9)
    request = sync_group.SyncGroupRequest(
        GROUP, 1, member_id, assignments=[sync_group.SyncGroupRequestAssignment(member_id, b"mine")]
    )
    if version >= 5:
        with pytest.raises(KafkaError) as missing:
            desk.ask(request, version)
        assert missing.value.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type, request.protocol_name = "consumer", "range"
    response = desk.ask(request, version)
    assert (response.error_code, response.assignment) == (0, b"mine")
    assert response.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", versions(heartbeat))
def test_heartbeat_accepts_only_members(desk: Desk, version: int) -> None:
    member_id = desk.stable_member()
    assert desk.ask(heartbeat.HeartbeatRequest(GROUP, 1, member_id), version).error_code == 0
    unknown = heartbeat.HeartbeatRequest(GROUP, 1, "nobody")
    assert desk.ask(unknown, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(leave_group))
def test_leave_group(desk: Desk, version: int) -> None:
    member_id = desk.stable_member()
    if version < 3:
        for wrong, error_code in (("nobody", ErrorCode.UNKNOWN_MEMBER_ID), (member_id, ErrorCode.NONE)):
            response = desk.ask(leave_group.LeaveGroupRequest(GROUP, wrong), version)
            assert (response.error_code, response.members) == (error_code, [])
        empty = desk.ask(leave_group.LeaveGroupRequest("", member_id), version)
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    else:
        members = [leave_group.MemberIdentity("nobody"), leave_group.MemberIdentity(member_id)]
        response = desk.ask(leave_group.LeaveGroupRequest(GROUP, members=members), version)
        assert response.error_code == 0
        assert [(each.member_id, each.error_code) for each in response.members] == [
            ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
            (member_id, ErrorCode.NONE),
        ]
        invalid = desk.ask(leave_group.LeaveGroupRequest("", members=members), version)
        assert (invalid.error_code, invalid.members) == (ErrorCode.INVALID_GROUP_ID, [])
    assert desk.play.state() == "Empty"


def commit_request(version: int, **fields: Any) -> offset_commit.OffsetCommitRequest:
    """Return a commit for partitions 0 and 2 of "t", of which only the first exists, and for a missing topic."""
    partitions = [
        offset_commit.OffsetCommitRequestPartition(0, 42, 3 if version >= 6 else -1, "note"),
        offset_commit.OffsetCommitRequestPartition(2, 43),
    ]
    topics = [
        offset_commit.OffsetCommitRequestTopic("t", TOPIC_ID, partitions),
        offset_commit.OffsetCommitRequestTopic("u", NO_SUCH_ID, partitions[:1]),
    ]
    return offset_commit.OffsetCommitRequest(GROUP, topics=topics, **fields)


@pytest.mark.parametrize("version", versions(offset_commit))
def test_offset_commit_returns_an_error_for_each_partition(desk: Desk, version: int) -> None:
    response = desk.ask(commit_request(version), version)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in response.topics] == [
        [(0, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        [(0, missing)],
    ]
    assert [(topic.name, topic.topic_id) for topic in response.topics] == (
        [("", TOPIC_ID), ("", NO_SUCH_ID)] if version >= 10 else [("t", NO_SUCH_ID), ("u", NO_SUCH_ID)]
    )
    committed = desk.play.fetch()["t"][0]
    assert committed is not None
    assert (committed.offset, committed.leader_epoch, committed.metadata) == (42, 3 if version >= 6 else -1, "note")
    assert list(desk.play.fetch()["t"]) == [0]


@pytest.mark.parametrize("version", versions(offset_commit))
def test_an_offset_commit_with_a_generation_is_refused_if_the_group_is_missing(desk: Desk, version: int) -> None:
    response = desk.ask(commit_request(version, generation_id_or_member_epoch=4, member_id="m"), version)
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert response.topics[0].partitions[0].error_code == expected


def test_offset_commit_for_missing_topics_is_answered(desk: Desk) -> None:
    request = offset_commit.OffsetCommitRequest(
        GROUP,
        topics=[
            offset_commit.OffsetCommitRequestTopic("u", partitions=[offset_commit.OffsetCommitRequestPartition(0, 1)])
        ],
    )
    response = desk.ask(request, 8)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.play.state() is None


@pytest.mark.parametrize("version", [version for version in versions(offset_fetch) if version < 8])
def test_offset_fetch_returns_offsets_of_one_group(desk: Desk, version: int) -> None:
    desk.ask(commit_request(8), 8)
    wanted = [offset_fetch.OffsetFetchRequestTopic("t", [0, 1]), offset_fetch.OffsetFetchRequestTopic("u", [5])]
    response = desk.ask(offset_fetch.OffsetFetchRequest(GROUP, wanted, require_stable=version >= 7), version)
    found = {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata, each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    assert found == {("t", 0): (42, "note", 0), ("t", 1): (-1, "", 0), ("u", 5): (-1, "", 0)}
    assert response.topics[0].partitions[0].committed_leader_epoch == (3 if version >= 5 else -1)
    if version >= 2:
        everything = desk.ask(offset_fetch.OffsetFetchRequest(GROUP, None), version)
        assert [[each.partition_index for each in topic.partitions] for topic in everything.topics] == [[0]]
        assert desk.ask(offset_fetch.OffsetFetchRequest("other", None), version).topics == []


@pytest.mark.parametrize("version", [version for version in versions(offset_fetch) if version >= 8])
def test_offset_fetch_returns_offsets_of_many_groups(desk: Desk, version: int) -> None:
    desk.ask(commit_request(8), 8)
    by_id = version >= 10
    named = [
        offset_fetch.OffsetFetchRequestTopics("t", TOPIC_ID, [0, 1]),
        offset_fetch.OffsetFetchRequestTopics("u", NO_SUCH_ID, [5]),
    ]
    groups = [
        offset_fetch.OffsetFetchRequestGroup(GROUP, topics=named),
        offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None),
        offset_fetch.OffsetFetchRequestGroup("other", topics=None),
    ]
    response = desk.ask(offset_fetch.OffsetFetchRequest(groups=groups, require_stable=True), version)
    assert [group.group_id for group in response.groups] == [GROUP, GROUP, "other"]
    first, second, third = response.groups
    assert [[(each.committed_offset, each.error_code) for each in topic.partitions] for topic in first.topics] == [
        [(42, 0), (-1, 0)],
        [(-1, ErrorCode.UNKNOWN_TOPIC_ID if by_id else 0)],
    ]
    assert [(topic.name, topic.topic_id) for topic in second.topics] == [("", TOPIC_ID) if by_id else ("t", NO_SUCH_ID)]
    assert third.topics == []


@pytest.mark.parametrize("version", versions(offset_fetch))
def test_offset_fetch_answers_each_entry_of_a_topic_that_is_named_twice(desk: Desk, version: int) -> None:
    desk.ask(commit_request(8), 8)
    asked = ([0, 0], [1], [0])
    if version < 8:
        request = offset_fetch.OffsetFetchRequest(
            GROUP, [offset_fetch.OffsetFetchRequestTopic("t", indexes) for indexes in asked]
        )
    else:
        topics = [offset_fetch.OffsetFetchRequestTopics("t", TOPIC_ID, indexes) for indexes in asked]
        request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=topics)])
    response = desk.ask(request, version)
    topics = response.topics if version < 8 else response.groups[0].topics
    assert [[(each.partition_index, each.committed_offset) for each in topic.partitions] for topic in topics] == [
        [(0, 42), (0, 42)],
        [(1, -1)],
        [(0, 42)],
    ]


@pytest.mark.parametrize(
    ("version", "key_type"),
    [(0, 0), *((version, key_type) for version in versions(find_coordinator)[1:] for key_type in range(4))],
)
def test_find_coordinator(desk: Desk, version: int, key_type: int) -> None:
    key = "group:AAAAAAAAAAAAAAAAAAAAAA:0" if key_type == 2 else "key"
    fits = key_type in (0, 1) or (key_type == 2 and version >= 6)
    if version < 4:
        request = find_coordinator.FindCoordinatorRequest(key, key_type)
        if not fits:
            with pytest.raises(KafkaError) as invalid:
                desk.ask(request, version)
            assert invalid.value.error_code is ErrorCode.INVALID_REQUEST
            assert invalid.value.message
            return
        coordinators = [desk.ask(request, version)]
    else:
        request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key, key])
        coordinators = desk.ask(request, version).coordinators
        assert [each.key for each in coordinators] == [key, key]
    for found in coordinators:
        if fits:
            assert (found.error_code, found.node_id, found.host, found.port) == (0, 7, "kafka.example.com", 9093)
            assert found.error_message == ("NONE" if 0 < version < 4 else "")
        else:
            assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
            assert found.error_message


def test_find_coordinator_creates_the_coordinators_topic(desk: Desk) -> None:
    for key_type, key in ((0, "key"), (1, "key"), (2, "group:AAAAAAAAAAAAAAAAAAAAAA:0"), (9, "key")):
        desk.ask(find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
    assert desk.required == ["__consumer_offsets", "__transaction_state", "__share_group_state"]


def test_find_coordinator_refuses_invalid_share_keys(desk: Desk) -> None:
    keys = ["group", "group:topic:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "group:AAAAAAAAAAAAAAAAAAAAAA:x"]
    request = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
    assert {each.error_code for each in desk.ask(request, 6).coordinators} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", versions(describe_groups))
def test_describe_groups_returns_state_and_members(desk: Desk, version: int) -> None:
    member_id = desk.stable_member()
    request = describe_groups.DescribeGroupsRequest([GROUP, "none"], include_authorized_operations=version >= 3)
    found, missing = desk.ask(request, version).groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        ErrorCode.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.client_host, member.member_assignment) == (member_id, "/10.0.0.5", b"mine")
    assert member.member_metadata == subscription("t")
    # The bits are READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS. The lowest integer means that they were
    # not requested.
    assert found.authorized_operations == (0b1101_0100_1000 if version >= 3 else -(2**31))
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert bool(missing.error_message) is (version >= 6)


@pytest.mark.parametrize("version", versions(list_groups))
def test_list_groups(desk: Desk, version: int) -> None:
    desk.stable_member()
    desk.ask(_simple_commit("simple"), 8)
    (group,) = [each for each in desk.ask(list_groups.ListGroupsRequest(), version).groups if each.group_id == GROUP]
    assert group.protocol_type == "consumer"
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        filtered = desk.ask(list_groups.ListGroupsRequest(["stable"]), version)
        assert [each.group_id for each in filtered.groups] == [GROUP]
    if version >= 5:
        assert desk.ask(list_groups.ListGroupsRequest([], ["share"]), version).groups == []


@pytest.mark.parametrize("version", versions(delete_groups))
def test_delete_groups(desk: Desk, version: int) -> None:
    desk.stable_member()
    desk.ask(_simple_commit("simple"), 8)
    response = desk.ask(delete_groups.DeleteGroupsRequest([GROUP, "simple", "none", "none"]), version)
    assert {each.group_id: each.error_code for each in response.results} == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert len(response.results) == 3


class Name(str):
    """A group id that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_delete_groups_takes_time_in_proportion_to_the_names(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k42_delete_groups, "may_group", lambda _context, _operation, name: name.endswith("0"))
    names = [Name(f"g{number}") for number in range(2_000)] * 2
    request, responses = delete_groups.DeleteGroupsRequest(list(names)), Responses()
    context = RequestContext(desk.connection, responses, delete_groups.DeleteGroupsRequest.API_KEY, 2, 1, "client")
    k42_delete_groups.delete(desk.broker, request, context)
    desk.play.settle()
    (response,) = responses.given
    assert len(response.results) == 2_000, "each name once, denied or not"
    codes = {each.group_id: each.error_code for each in response.results}
    assert codes["g10"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert codes["g11"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert Name.compared < 10 * len(names)


def _simple_commit(group_id: str) -> offset_commit.OffsetCommitRequest:
    partitions = [offset_commit.OffsetCommitRequestPartition(0, 1)]
    return offset_commit.OffsetCommitRequest(
        group_id, topics=[offset_commit.OffsetCommitRequestTopic("t", partitions=partitions)]
    )


def test_offset_delete(desk: Desk) -> None:
    desk.ask(_simple_commit(GROUP), 8)
    partitions = [offset_delete.OffsetDeleteRequestPartition(index) for index in (0, 2)]
    topics = [offset_delete.OffsetDeleteRequestTopic(name, partitions) for name in ("t", "u")]
    response = desk.ask(offset_delete.OffsetDeleteRequest(GROUP, topics), 0)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [[each.error_code for each in topic.partitions] for topic in response.topics] == [
        [0, missing],
        [missing] * 2,
    ]
    assert desk.play.fetch() == {}

    with pytest.raises(KafkaError) as unknown:
        desk.ask(offset_delete.OffsetDeleteRequest("none", topics), 0)
    assert unknown.value.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError) as nameless:
        desk.ask(offset_delete.OffsetDeleteRequest("", topics), 0)
    assert nameless.value.error_code is ErrorCode.INVALID_GROUP_ID


def test_offset_delete_keeps_offsets_of_subscribed_topics(desk: Desk) -> None:
    desk.stable_member()
    topics = [offset_delete.OffsetDeleteRequestTopic("t", [offset_delete.OffsetDeleteRequestPartition(0)])]
    response = desk.ask(offset_delete.OffsetDeleteRequest(GROUP, topics), 0)
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
