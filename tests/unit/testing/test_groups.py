"""Tests of `EmbeddedServer.group`: members, assignments, offsets and lag, with both protocols and several nodes."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from klamm.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NAME = "readers"


@pytest.fixture(scope="module", params=[1, 3])
def server(request):
    with EmbeddedServer(nodes=request.param) as server:
        if request.param > 1:
            server.nodes.move_coordinator(NAME, 1)
        yield server


@pytest.fixture
def client(server):
    server.reset()
    with RawClient(server.address(), client_id="me") as client:
        yield client


class Classic:
    """A client that joins, is assigned partitions 0 and 1, commits and leaves with the classic protocol."""

    def join(self, client, topic):
        join = JoinGroupRequest(NAME, 30_000, 30_000, "", None, "consumer")
        join.protocols = [JoinGroupRequestProtocol("range", b"")]
        join.member_id = client.call(join, 5).member_id
        member = client.call(join, 5)
        assignment = b"\0\0" + ConsumerProtocolAssignment([TopicPartition(topic, [0, 1])]).encode(0)
        sync = SyncGroupRequest(NAME, member.generation_id, member.member_id)
        sync.assignments = [SyncGroupRequestAssignment(member.member_id, assignment)]
        client.call(sync, 3)
        self.member = member.member_id, member.generation_id

    def leave(self, client):
        client.call(LeaveGroupRequest(NAME, members=[MemberIdentity(self.member[0])]), 4)


class Consumer:
    """A member of a group with the consumer protocol."""

    def join(self, client, topic):
        beat = ConsumerGroupHeartbeatRequest(NAME, "m" * 22, 0, rebalance_timeout_ms=30_000)
        beat.subscribed_topic_names, beat.topic_partitions = [topic], []
        answer = client.call(beat, 0)
        self.member = beat.member_id, answer.member_epoch

    def leave(self, client):
        client.call(ConsumerGroupHeartbeatRequest(NAME, self.member[0], -1), 0)


def commit(client, member, topic, offset):
    partition = OffsetCommitRequestPartition(0, offset)
    request = OffsetCommitRequest(
        NAME, member[1], member[0], topics=[OffsetCommitRequestTopic(topic, b"", [partition])]
    )
    assert client.call(request, 9).topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("kind", [Classic, Consumer])
def test_a_group_reports_its_members_offsets_and_lag(server, client, kind):
    topic = server.create_topic(partitions=2)
    server.produce(topic, "one", "two", "three")
    server.produce(topic, "four", partition=1)
    group, member = server.group(NAME), kind()
    assert (group.state, group.members(), group.committed(), group.lag()) == ("Dead", [], {}, {})
    member.join(client, topic)
    (found,) = group.wait(members=1).members()
    assert (found.member_id, found.client_id, found.instance_id) == (member.member[0], "me", None)
    assert found.partitions == ((topic, 0), (topic, 1))
    assert group.lag() == {(topic, 0): 3, (topic, 1): 1}
    commit(client, member.member, topic, 2)
    assert group.committed() == {(topic, 0): 2}
    assert group.wait(lag=2).lag() == {(topic, 0): 1, (topic, 1): 1}
    member.leave(client)
    assert group.wait(state="Empty").members() == []
    assert group.lag() == {(topic, 0): 1}


def test_the_error_of_a_wait_describes_the_group(server, client):
    with pytest.raises(
        TimeoutError, match="group readers: not within 0.01 s; it is Dead, has 0 members and a lag of 0"
    ):
        server.group(NAME).wait(members=1, timeout_s=0.01)


def test_a_wait_ends_when_a_member_joins(server, client):
    topic = server.create_topic(partitions=2)
    with ThreadPoolExecutor(1) as waiting:
        found = waiting.submit(server.group(NAME).wait, members=1)
        Consumer().join(client, topic)
        assert len(found.result().members()) == 1
