"""Tests of three nodes in one process, each with its own port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import (
    add_offsets_to_txn,
    alter_partition_reassignments,
    create_topics,
    delete_groups,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from klamm.wire.records import Record, encode_batch
from klamm_broker.cluster.coordinators import coordinator_partition
from klamm_broker.topics.leadership import NO_LEADER

NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(nodes=3) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(server: EmbeddedServer) -> Iterator[None]:
    yield
    for node in NODES:
        server.nodes.start(node)


@contextlib.contextmanager
def node_client(server: EmbeddedServer, node: int) -> Iterator[RawClient]:
    address = server.bootstrap.split(",")[node - 1]
    host, _, port = address.rpartition(":")
    with RawClient((host, int(port))) as client:
        yield client


def ask(server: EmbeddedServer, node: int, request: Any, version: int) -> Any:
    with node_client(server, node) as client:
        return client.call(request, version)


def other_than(node: int) -> int:
    return node % 3 + 1


@pytest.fixture
def single(server: EmbeddedServer) -> str:
    """Return a topic of one partition with one replica."""
    return server.create_topic()


@pytest.fixture
def replicated(server: EmbeddedServer) -> str:
    """Return a topic of one partition with three replicas."""
    name = server.create_topic()
    server.admin.delete_topics(name)
    server.admin.create_topic(name, 1, replication_factor=3)
    return name


def leader_of(server: EmbeddedServer, topic: str) -> int:
    leader: int = server.nodes.leaders(topic)[0]
    return leader


def partition_metadata(server: EmbeddedServer, topic: str, node: int = 1) -> metadata.MetadataResponsePartition:
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
    (found,) = ask(server, node, request, 9).topics
    partition: metadata.MetadataResponsePartition = found.partitions[0]
    return partition


def produce_request(topic: str, acks: int = 1) -> produce.ProduceRequest:
    batch = encode_batch([Record(timestamp_ms=1, value=b"v")])
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, bytes(batch))])
    return produce.ProduceRequest(None, acks, 1000, [data])


def fetch_request(topic: str, *, epoch: int = -1, max_wait_ms: int = 0, offset: int = 0) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic, partitions=[partition])],
    )


# Metadata and coordinators


def test_each_node_returns_all_nodes_and_the_same_leaders(server: EmbeddedServer) -> None:
    topic = server.create_topic(partitions=6)
    answers = [
        ask(server, node, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)]), 9) for node in NODES
    ]
    for answer in answers:
        assert [f"{node.host}:{node.port}" for node in answer.brokers] == server.bootstrap.split(",")
        assert [node.node_id for node in answer.brokers] == [1, 2, 3]
        assert answer.controller_id == 1
    leaders = [[each.leader_id for each in answer.topics[0].partitions] for answer in answers]
    assert leaders[0] == leaders[1] == leaders[2]
    assert sorted(leaders[0]) == [1, 1, 2, 2, 3, 3]
    described = ask(server, 3, describe_cluster.DescribeClusterRequest(), 0)
    assert [node.broker_id for node in described.brokers] == [1, 2, 3]


@pytest.mark.parametrize(
    # `String.hashCode` of Java returns these values.
    ("key", "code"),
    [("", 0), ("hello", 99162322), ("é", 233), ("\U0001f600", 1772899), ("consumer-group", -1738392088)],
)
def test_the_hash_of_java_decides_the_partition_of_a_key(key: str, code: int) -> None:
    assert coordinator_partition(key) == abs(code) % 50


def test_the_lowest_hash_of_java_belongs_to_the_first_partition() -> None:
    assert coordinator_partition("polygenelubricants") == 0


def test_coordinators_are_spread_and_the_same_for_every_node(server: EmbeddedServer) -> None:
    keys = [f"group-{number}" for number in range(20)]
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=keys)
    answers = [[each.node_id for each in ask(server, node, request, 4).coordinators] for node in NODES]
    assert answers[0] == answers[1] == answers[2] == [server.nodes.coordinator(key) for key in keys]
    assert set(answers[0]) == {1, 2, 3}


# Leaders


@pytest.mark.parametrize("version", [9, 10])
def test_produce_to_another_node_names_the_leader(server: EmbeddedServer, single: str, version: int) -> None:
    leader = leader_of(server, single)
    answer = ask(server, other_than(leader), produce_request(single), version)
    (result,) = answer.responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    if version < 10:
        assert not answer.node_endpoints
    else:
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (leader, 0)
        (endpoint,) = answer.node_endpoints
        assert f"{endpoint.host}:{endpoint.port}" == server.bootstrap.split(",")[leader - 1]
    (result,) = ask(server, leader, produce_request(single), version).responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (0, 0)


def test_produce_without_acks_to_another_node_closes_the_connection(server: EmbeddedServer, single: str) -> None:
    with node_client(server, other_than(leader_of(server, single))) as client:
        client.send(produce_request(single, acks=0), 9)
        assert client.at_end()


def test_only_replicas_serve_fetches(server: EmbeddedServer, single: str, replicated: str) -> None:
    server.produce(single, b"v")
    server.produce(replicated, b"v")

    def error_of(topic: str, version: int) -> int:
        answer = ask(server, other_than(leader_of(server, topic)), fetch_request(topic), version)
        code: int = answer.responses[0].partitions[0].error_code
        return code

    assert error_of(single, 12) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(replicated, 10) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(replicated, 12) == 0


def test_only_replicas_describe_producers(server: EmbeddedServer, single: str, replicated: str) -> None:
    def error_of(topic: str) -> int:
        request = describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(topic, [0])])
        answer = ask(server, other_than(leader_of(server, topic)), request, 0)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    assert error_of(single) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(replicated) == 0


def test_a_fetch_from_another_node_names_the_leader(server: EmbeddedServer, single: str) -> None:
    leader = leader_of(server, single)
    topic_id = (
        ask(server, 1, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=single)]), 12).topics[0].topic_id
    )
    request = fetch_request("")
    request.topics[0].topic_id = topic_id
    answer = ask(server, other_than(leader), request, 16)
    data = answer.responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (leader, 0)
    assert [each.node_id for each in answer.node_endpoints] == [leader]


def test_leader_epochs_increase_and_fence(server: EmbeddedServer, replicated: str) -> None:
    server.produce(replicated, b"0", b"1")
    before = leader_of(server, replicated)
    after = other_than(before)
    server.nodes.move_leader(replicated, 0, after)
    server.produce(replicated, b"2")
    found = partition_metadata(server, replicated, 3)
    assert (found.leader_id, found.leader_epoch) == (after, 1)

    def error_of(epoch: int, node: int = after) -> int:
        code: int = ask(server, node, fetch_request(replicated, epoch=epoch), 12).responses[0].partitions[0].error_code
        return code

    assert [error_of(epoch) for epoch in (0, 1, 2, -1)] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        0,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        0,
    ]
    assert error_of(0, before) == ErrorCode.FENCED_LEADER_EPOCH

    def end_of(epoch: int) -> tuple[int, int]:
        wanted = offset_for_leader_epoch.OffsetForLeaderPartition(0, 1, epoch)
        topics = [offset_for_leader_epoch.OffsetForLeaderTopic(replicated, [wanted])]
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, topics)
        (end,) = ask(server, after, request, 3).topics[0].partitions
        return end.leader_epoch, end.end_offset

    assert [end_of(epoch) for epoch in (0, 1, 2)] == [(0, 2), (1, 3), (-1, -1)]

    def listed(timestamp: int) -> tuple[int, int]:
        asked = list_offsets.ListOffsetsPartition(0, timestamp=timestamp)
        request = list_offsets.ListOffsetsRequest(-1, topics=[list_offsets.ListOffsetsTopic(replicated, [asked])])
        (answer,) = ask(server, after, request, 5).topics[0].partitions
        return answer.offset, answer.leader_epoch

    assert (listed(-2), listed(-1)) == ((0, 0), (3, 1))


def test_list_offsets_at_another_node_names_the_leader(server: EmbeddedServer, single: str) -> None:
    asked = list_offsets.ListOffsetsPartition(0, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(-1, topics=[list_offsets.ListOffsetsTopic(single, [asked])])
    (answer,) = ask(server, other_than(leader_of(server, single)), request, 5).topics[0].partitions
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("epoch", "error"), [(0, "FENCED_LEADER_EPOCH"), (-1, "NOT_LEADER_OR_FOLLOWER")])
def test_a_waiting_fetch_ends_when_its_leader_moves(
    server: EmbeddedServer, single: str, epoch: int, error: str
) -> None:
    leader = leader_of(server, single)
    with node_client(server, leader) as client:
        correlation_id = client.send(fetch_request(single, epoch=epoch, max_wait_ms=30_000), 10)
        purgatory = server.api_set().fetch_purgatory
        server.wait_until(purgatory.watched, "the fetch waits")
        if epoch < 0:
            server.nodes.move_leader(single, 0, other_than(leader))
        else:
            server.nodes.make_leaderless(single, 0)
        answer = client.receive(fetch.API_KEY, 10, correlation_id)
    assert answer.responses[0].partitions[0].error_code == ErrorCode[error]


def test_a_partition_without_a_leader_is_not_available(server: EmbeddedServer, replicated: str) -> None:
    before = leader_of(server, replicated)
    server.nodes.make_leaderless(replicated, 0)
    found = partition_metadata(server, replicated)
    assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    (result,) = ask(server, before, produce_request(replicated), 9).responses[0].partition_responses
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    server.nodes.move_leader(replicated, 0, before)
    assert partition_metadata(server, replicated).leader_epoch == 2
    assert server.produce(replicated, b"v") == 0


# Nodes


def test_a_stopped_node_closes_its_connections_and_loses_its_partitions(
    server: EmbeddedServer, single: str, replicated: str
) -> None:
    node = leader_of(server, replicated)
    server.nodes.move_leader(single, 0, node)
    with node_client(server, node) as client:
        client.call(metadata.MetadataRequest([]), 9)
        server.nodes.stop(node)
        assert client.at_end()
    with pytest.raises(ConnectionError), node_client(server, node):
        pass
    witness = other_than(node)
    answer = ask(server, witness, metadata.MetadataRequest([]), 9)
    assert [each.node_id for each in answer.brokers] == [each for each in NODES if each != node]
    gone, moved = (partition_metadata(server, topic, witness) for topic in (single, replicated))
    assert (gone.error_code, gone.leader_id, gone.offline_replicas) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        NO_LEADER,
        [node],
    )
    assert moved.leader_id != node
    assert (sorted(moved.isr_nodes), moved.offline_replicas) == ([each for each in NODES if each != node], [node])
    server.produce(replicated, b"v")
    server.nodes.start(node)
    assert leader_of(server, single) == node
    assert partition_metadata(server, single, node).leader_epoch == gone.leader_epoch + 1
    assert sorted(partition_metadata(server, replicated, node).isr_nodes) == [1, 2, 3]


def test_coordinators_move_with_nodes(server: EmbeddedServer) -> None:
    node = server.nodes.coordinator("group")
    server.nodes.stop(node)
    assert server.nodes.coordinator("group") != node
    server.nodes.start(node)
    assert server.nodes.coordinator("group") == node


def test_the_last_node_cannot_be_stopped(server: EmbeddedServer) -> None:
    server.nodes.stop(1)
    server.nodes.stop(3)
    with pytest.raises(ValueError, match="the last running node cannot be stopped"):
        server.nodes.stop(2)
    assert [node["running"] for node in server.nodes.describe()] == [False, True, False]
    with pytest.raises(ValueError, match="node 3 is not running"):
        server.nodes.move_coordinator("group", 3)
    with pytest.raises(LookupError, match="there is no node 4; there is 1, 2, 3"):
        server.nodes.stop(4)


# Coordinators

PARTITION = offset_commit.OffsetCommitRequestPartition(0, 1)
GROUP_REQUESTS = {
    "join": (join_group.JoinGroupRequest("group", 10_000, 10_000, protocol_type="consumer"), 5),
    "sync": (sync_group.SyncGroupRequest("group"), 3),
    "heartbeat": (heartbeat.HeartbeatRequest("group"), 3),
    "leave": (leave_group.LeaveGroupRequest("group"), 3),
    "offset delete": (offset_delete.OffsetDeleteRequest("group"), 0),
    "offset fetch": (offset_fetch.OffsetFetchRequest("group"), 7),
}


@pytest.mark.parametrize("name", GROUP_REQUESTS)
def test_another_node_coordinates_the_group(server: EmbeddedServer, name: str) -> None:
    request, version = GROUP_REQUESTS[name]
    answer = ask(server, other_than(server.nodes.coordinator("group")), request, version)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_another_node_coordinates_one_group_of_several(server: EmbeddedServer, single: str) -> None:
    node = other_than(server.nodes.coordinator("group"))
    topics = [offset_commit.OffsetCommitRequestTopic(single, partitions=[PARTITION])]
    committed = ask(server, node, offset_commit.OffsetCommitRequest("group", topics=topics), 7)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    group = offset_fetch.OffsetFetchRequestGroup("group", topics=None)
    fetched = ask(server, node, offset_fetch.OffsetFetchRequest(groups=[group]), 8)
    assert fetched.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    described = ask(server, node, describe_groups.DescribeGroupsRequest(["group"]), 5)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    deleted = ask(server, node, delete_groups.DeleteGroupsRequest(["group"]), 2)
    assert deleted.results[0].error_code == ErrorCode.NOT_COORDINATOR


def test_each_node_lists_the_groups_that_it_coordinates(server: EmbeddedServer, single: str) -> None:
    names = [f"listed-{number}" for number in range(6)]
    for name in names:
        topics = [offset_commit.OffsetCommitRequestTopic(single, partitions=[PARTITION])]
        request = offset_commit.OffsetCommitRequest(name, topics=topics)
        answer = ask(server, server.nodes.coordinator(name), request, 7)
        assert answer.topics[0].partitions[0].error_code == 0
    for node in NODES:
        found = {each.group_id for each in ask(server, node, list_groups.ListGroupsRequest(), 4).groups}
        assert found & {*names} == {name for name in names if server.nodes.coordinator(name) == node}
    assert {*names} <= server.admin.groups().keys()


TRANSACTION_REQUESTS = {
    "init": (init_producer_id.InitProducerIdRequest("txn", 10_000), 4),
    "add offsets": (add_offsets_to_txn.AddOffsetsToTxnRequest("txn", 1, 0, "group"), 3),
    "end": (end_txn.EndTxnRequest("txn", 1, 0), 3),
}


@pytest.mark.parametrize("name", TRANSACTION_REQUESTS)
def test_another_node_coordinates_the_transaction(server: EmbeddedServer, name: str) -> None:
    request, version = TRANSACTION_REQUESTS[name]
    answer = ask(server, other_than(server.nodes.coordinator("txn")), request, version)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_of_a_transaction_go_to_the_coordinator_of_the_group(server: EmbeddedServer, single: str) -> None:
    wanted = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(single, partitions=[wanted])]
    request = txn_offset_commit.TxnOffsetCommitRequest("txn", "group", 1, 0, topics=topics)
    answer = ask(server, other_than(server.nodes.coordinator("group")), request, 3)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_waiting_join_ends_when_its_coordinator_moves(server: EmbeddedServer) -> None:
    """The first of two members waits in a join phase, and the second does not take part."""
    node = server.nodes.coordinator("waiting")
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]

    def join(member_id: str = "") -> join_group.JoinGroupRequest:
        return join_group.JoinGroupRequest("waiting", 10_000, 30_000, member_id, None, "consumer", protocols)

    with node_client(server, node) as first, node_client(server, node) as second:
        joined = first.call(join(), 3)
        assert joined.error_code == 0
        correlation_id = second.send(join(), 3)
        group = server.api_set().groups.administration
        server.wait_until(lambda: group.describe("waiting").state == "PreparingRebalance", "the join phase begins")
        server.nodes.move_coordinator("waiting", other_than(node))
        answer = second.receive(join_group.API_KEY, 3, correlation_id)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        beat = heartbeat.HeartbeatRequest("waiting", joined.generation_id, joined.member_id)
        assert first.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
        moved = ask(server, other_than(node), beat, 3)
        assert moved.error_code == ErrorCode.REBALANCE_IN_PROGRESS


# Administration


def elected(server: EmbeddedServer, topic: str, kind: int) -> int:
    wanted = [elect_leaders.TopicPartitions(topic, [0])]
    answer = ask(server, 1, elect_leaders.ElectLeadersRequest(kind, wanted, 1000), 1)
    code: int = answer.replica_election_results[0].partition_result[0].error_code
    return code


def test_election_returns_the_preferred_leader(server: EmbeddedServer, replicated: str) -> None:
    preferred = leader_of(server, replicated)
    assert elected(server, replicated, 0) == ErrorCode.ELECTION_NOT_NEEDED
    server.nodes.move_leader(replicated, 0, other_than(preferred))
    assert elected(server, replicated, 0) == 0
    assert leader_of(server, replicated) == preferred
    assert elected(server, replicated, 1) == ErrorCode.ELECTION_NOT_NEEDED
    server.nodes.make_leaderless(replicated, 0)
    assert elected(server, replicated, 1) == 0
    assert leader_of(server, replicated) == preferred


def test_no_election_happens_if_the_preferred_leader_does_not_run(server: EmbeddedServer) -> None:
    name = server.create_topic()
    server.nodes.move_leader(name, 0, 3)
    server.nodes.stop(3)
    assert leader_of(server, name) == NO_LEADER
    assert elected(server, name, 0) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elected(server, name, 1) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_election_without_a_list_covers_all_partitions(server: EmbeddedServer, replicated: str) -> None:
    server.nodes.move_leader(replicated, 0, other_than(leader_of(server, replicated)))
    answer = ask(server, 2, elect_leaders.ElectLeadersRequest(0, None, 1000), 1)
    assert replicated in {each.topic for each in answer.replica_election_results}
    again = ask(server, 2, elect_leaders.ElectLeadersRequest(0, None, 1000), 1)
    assert again.replica_election_results == []


@pytest.mark.parametrize(
    ("replicas", "error"),
    [([2], 0), ([3, 1], 0), ([4], "INVALID_REPLICA_ASSIGNMENT"), ([1, 1], "INVALID_REPLICA_ASSIGNMENT")],
)
def test_reassignment_is_refused_with_its_reason(
    server: EmbeddedServer, replicated: str, replicas: list[int], error: Any
) -> None:
    wanted = [alter_partition_reassignments.ReassignablePartition(0, replicas)]
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[alter_partition_reassignments.ReassignableTopic(replicated, wanted)]
    )
    (result,) = ask(server, 2, request, 0).responses[0].partitions
    assert result.error_code == (ErrorCode[error] if error else 0)
    found = partition_metadata(server, replicated)
    assert sorted(found.replica_nodes) == ([1, 2, 3] if error else sorted(replicas))
    assert found.leader_id in found.replica_nodes
    for node in NODES:
        described = ask(server, node, describe_log_dirs.DescribeLogDirsRequest(None), 1)
        names = {topic.name for each in described.results for topic in each.topics}
        assert (replicated in names) == (node in found.replica_nodes)


@pytest.mark.parametrize(("factor", "error"), [(3, 0), (4, "INVALID_REPLICATION_FACTOR")])
def test_a_topic_has_as_many_replicas_as_nodes_run(server: EmbeddedServer, factor: int, error: Any) -> None:
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(f"factor-{factor}", 2, factor)], 1000)
    (result,) = ask(server, 1, request, 5).topics
    assert result.error_code == (ErrorCode[error] if error else 0)
    assert error or result.replication_factor == factor


def test_topic_keeps_its_assigned_replicas(server: EmbeddedServer) -> None:
    assignments = [
        create_topics.CreatableReplicaAssignment(1, [3, 2]),
        create_topics.CreatableReplicaAssignment(0, [2, 1]),
    ]
    topic = create_topics.CreatableTopic("assigned", -1, -1, assignments)
    (result,) = ask(server, 1, create_topics.CreateTopicsRequest([topic], 1000), 5).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
    assert server.nodes.leaders("assigned") == {0: 2, 1: 3}


def test_a_node_describes_its_own_configs(server: EmbeddedServer) -> None:
    def answers(name: str) -> Any:
        resource = describe_configs.DescribeConfigsResource(4, name, ["num.partitions"])
        (result,) = ask(server, 2, describe_configs.DescribeConfigsRequest([resource]), 4).results
        return result.error_code, [(each.name, each.value) for each in result.configs or ()]

    refused = (ErrorCode.INVALID_REQUEST, [])
    assert [answers(name) for name in ("1", "2", "3")] == [refused, (0, [("num.partitions", "1")]), refused]
    assert answers("4") == (ErrorCode.INVALID_REQUEST, [])


def test_share_requests_at_another_node_name_the_leader(server: EmbeddedServer, replicated: str) -> None:
    leader = leader_of(server, replicated)
    asked = other_than(leader)
    coordinator = server.nodes.coordinator("sharers")
    joined = share_group_heartbeat.ShareGroupHeartbeatRequest("sharers", "m", 0, None, [replicated])
    assert ask(server, coordinator, joined, 1).error_code == 0
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=replicated)])
    topic_id = ask(server, asked, request, 12).topics[0].topic_id
    partition = share_acknowledge.AcknowledgePartition(0, [share_acknowledge.AcknowledgementBatch(0, 0, [1])])
    with node_client(server, asked) as client:
        topics = [share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
        fetched = client.call(share_fetch.ShareFetchRequest("sharers", "m", 0, 10, topics=topics), 1)
        acknowledged = client.call(
            share_acknowledge.ShareAcknowledgeRequest(
                "sharers", "m", 1, topics=[share_acknowledge.AcknowledgeTopic(topic_id, [partition])]
            ),
            1,
        )
    epoch = partition_metadata(server, replicated).leader_epoch
    for answer in (fetched, acknowledged):
        found = answer.responses[0].partitions[0]
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (leader, epoch)
        (node,) = answer.node_endpoints
        assert (node.node_id, f"{node.host}:{node.port}") == (leader, server.bootstrap.split(",")[leader - 1])


def test_a_restart_keeps_leaders_and_epochs() -> None:
    with EmbeddedServer(nodes=3) as server:
        server.admin.create_topic("kept", 2, replication_factor=2)
        server.produce("kept", b"v")
        server.nodes.move_leader("kept", 0, 3)
        before = partition_metadata(server, "kept")
        server.nodes.stop(partition_metadata(server, "kept").leader_id)
        stopped = partition_metadata(server, "kept")
        server.restart()
        after = partition_metadata(server, "kept")
        assert (after.replica_nodes, after.leader_id) == (before.replica_nodes, stopped.leader_id)
        assert after.leader_epoch == stopped.leader_epoch
        assert [record.value for record in server.consume("kept")] == [b"v"]


def test_a_listener_of_each_node_has_the_next_port() -> None:
    plan = EmbeddedServer(["listeners.default.bind=127.0.0.1:39092", "nodes=3"]).plan
    assert [(each.name, each.bind[1], each.node) for each in plan.listeners] == [
        ("default", 39092, 0),
        ("default-2", 39093, 1),
        ("default-3", 39094, 2),
    ]
