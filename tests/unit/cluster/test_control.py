"""Tests of the handler set `control` for a broker of three nodes: its four requests, and stale epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.testing import EmbeddedServer, RawClient
from klamm.wire.messages import (
    controlled_shutdown,
    leader_and_isr,
    metadata,
    produce,
    stop_replica,
    update_metadata,
)
from klamm.wire.messages.controlled_shutdown import ControlledShutdownRequest
from klamm.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from klamm.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from klamm.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from klamm.wire.records import Record, encode_batch
from klamm_broker.topics.leadership import NO_LEADER

NODES = (1, 2, 3)
CONFIG = """
[listeners.default]
bind = "127.0.0.1:0"
[listeners.control]
bind = "127.0.0.1:0"
api_set = "control"
[listeners.guarded]
bind = "127.0.0.1:0"
api_set = "control"
authorizer = "acl"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    file = tmp_path_factory.mktemp("control") / "klamm.toml"
    file.write_text(CONFIG)
    with EmbeddedServer(file=file, nodes=3) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(server: EmbeddedServer) -> Iterator[None]:
    yield
    for node in NODES:
        server.nodes.start(node)


@pytest.fixture
def topic(server: EmbeddedServer) -> str:
    """Return a partition with three replicas, led by node 1."""
    name = server.create_topic()
    server.admin.delete_topics(name)
    server.admin.create_topic(name, 1, replication_factor=3)
    broker = server.api_set()
    broker.cluster.elections.reassign(broker.topics.get(name).partitions[0], NODES)
    server.nodes.move_leader(name, 0, 1)
    return name


def ask(server: EmbeddedServer, node: int, request: Any, version: int, listener: str = "control") -> Any:
    name = listener if node == 1 else f"{listener}-{node}"
    with RawClient(server.address(name)) as client:
        return client.call(request, version)


def seen(server: EmbeddedServer, topic: str, node: int) -> metadata.MetadataResponsePartition:
    """Return the partition as a client of another listener sees it."""
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)])
    partition: metadata.MetadataResponsePartition = ask(server, node, request, 9, "default").topics[0].partitions[0]
    return partition


def produced(server: EmbeddedServer, topic: str, node: int) -> int:
    batch = encode_batch([Record(timestamp_ms=1, value=b"v")])
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, bytes(batch))])
    answer = ask(server, node, produce.ProduceRequest(None, 1, 1000, [data]), 9, "default")
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def leader_request(
    topic: str, leader: int, epoch: int, *, replicas: tuple[int, ...] = NODES, controller: int = 1, broker: int = -1
) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(leader=leader, leader_epoch=epoch, isr=[*replicas], replicas=[*replicas])
    topics = [LeaderAndIsrTopicState(topic, partition_states=[state])]
    return LeaderAndIsrRequest(controller_epoch=controller, broker_epoch=broker, topic_states=topics)


def result(answer: Any) -> int:
    """Return the result of the only partition."""
    assert answer.error_code == ErrorCode.NONE
    errors = answer.topics[0].partition_errors if getattr(answer, "topics", None) else answer.partition_errors
    code: int = errors[0].error_code
    return code


def test_clients_of_other_listeners_see_a_new_leader(server: EmbeddedServer, topic: str) -> None:
    before = seen(server, topic, 3)
    assert produced(server, topic, 1) == ErrorCode.NONE
    assert result(ask(server, 2, leader_request(topic, 2, before.leader_epoch + 5), 7)) == ErrorCode.NONE
    for node in NODES:
        after = seen(server, topic, node)
        assert (after.leader_id, after.leader_epoch) == (2, before.leader_epoch + 5)
    assert produced(server, topic, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produced(server, topic, 2) == ErrorCode.NONE


def test_a_controllers_changes_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "klamm.toml"
    file.write_text(CONFIG)
    with EmbeddedServer(file=file, nodes=3) as server:
        server.admin.create_topic("kept", 1, replication_factor=3)
        ask(server, 3, leader_request("kept", 3, 40), 7)
        server.restart()
        after = seen(server, "kept", 1)
        assert (after.leader_id, after.leader_epoch) == (3, 40)


@pytest.mark.parametrize("version", leader_and_isr.VERSIONS)
def test_every_version_of_leader_and_isr_changes_the_leader(server: EmbeddedServer, topic: str, version: int) -> None:
    epoch = seen(server, topic, 1).leader_epoch + 1
    state = LeaderAndIsrPartitionState(leader=3, leader_epoch=epoch, replicas=[*NODES])
    request = LeaderAndIsrRequest(controller_epoch=1)
    if version < 2:
        state.topic_name = topic
        request.ungrouped_partition_states = [state]
    else:
        request.topic_states = [LeaderAndIsrTopicState(topic, partition_states=[state])]
    answer = ask(server, 1, request, version)
    assert result(answer) == ErrorCode.NONE
    if version < 5:
        assert answer.partition_errors[0].topic_name == topic
    assert seen(server, topic, 2).leader_id == 3


def test_a_leader_epoch_that_is_not_higher_is_refused(server: EmbeddedServer, topic: str) -> None:
    epoch = seen(server, topic, 1).leader_epoch + 1
    assert result(ask(server, 1, leader_request(topic, 2, epoch), 7)) == ErrorCode.NONE
    assert result(ask(server, 1, leader_request(topic, 2, epoch), 7)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert result(ask(server, 2, leader_request(topic, 3, epoch), 7)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert result(ask(server, 2, leader_request(topic, 2, epoch), 7)) == ErrorCode.NONE
    assert result(ask(server, 2, leader_request(topic, 2, epoch), 7)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert result(ask(server, 3, leader_request(topic, 1, epoch - 1), 7)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert seen(server, topic, 1).leader_id == 2


def test_of_two_changes_of_a_partition_the_higher_epoch_applies(server: EmbeddedServer, topic: str) -> None:
    epoch = seen(server, topic, 1).leader_epoch
    request = leader_request(topic, 2, epoch + 2)
    request.topic_states += leader_request(topic, 3, epoch + 1).topic_states
    ask(server, 1, request, 7)
    assert seen(server, topic, 1).leader_id == 2


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"name": "no-such-topic"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"replicas": (2, 3)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": b"another topic id"}, ErrorCode.INCONSISTENT_TOPIC_ID),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else next(iter(value)),
)
def test_changes_of_replicas_that_the_node_lacks_are_refused(
    server: EmbeddedServer, topic: str, change: dict[str, Any], code: ErrorCode
) -> None:
    before = seen(server, topic, 1)
    request = leader_request(
        change.get("name", topic), 2, before.leader_epoch + 1, replicas=change.get("replicas", NODES)
    )
    request.topic_states[0].topic_id = change.get("topic_id", bytes(16))
    request.topic_states[0].partition_states[0].partition_index = change.get("index", 0)
    assert result(ask(server, 1, request, 7)) == code
    assert seen(server, topic, 1).leader_epoch == before.leader_epoch


@pytest.mark.parametrize(("leader", "replicas"), [(9, (1, 2, 9)), (-2, NODES), (3, (1, 2))])
def test_a_leader_that_cannot_lead_leaves_the_partition_without_one(
    server: EmbeddedServer, topic: str, leader: int, replicas: tuple[int, ...]
) -> None:
    epoch = seen(server, topic, 1).leader_epoch + 1
    assert result(ask(server, 1, leader_request(topic, leader, epoch, replicas=replicas), 7)) == ErrorCode.NONE
    assert server.nodes.leaders(topic) == {0: NO_LEADER}
    assert 9 not in seen(server, topic, 1).replica_nodes


@pytest.mark.parametrize("version", stop_replica.VERSIONS)
def test_a_replica_that_is_deleted_leaves_its_node(server: EmbeddedServer, topic: str, version: int) -> None:
    request = StopReplicaRequest(controller_epoch=1)
    if version < 3:
        request.delete_partitions = True
    if version == 0:
        request.ungrouped_partitions = [StopReplicaPartitionV0(topic, 0)]
    elif version < 3:
        request.topics = [StopReplicaTopicV1(topic, [0])]
    else:
        request.topic_states = [StopReplicaTopicState(topic, [StopReplicaPartitionState(delete_partition=True)])]
    answer = ask(server, 1, request, version)
    assert (result(answer), answer.partition_errors[0].topic_name) == (ErrorCode.NONE, topic)
    after = seen(server, topic, 2)
    assert (after.leader_id, after.replica_nodes) == (2, [2, 3])


def stop_request(topic: str, *, leader_epoch: int = -1, controller: int = 1, broker: int = -1) -> StopReplicaRequest:
    state = StopReplicaPartitionState(leader_epoch=leader_epoch, delete_partition=True)
    topics = [StopReplicaTopicState(topic, [state])]
    return StopReplicaRequest(controller_epoch=controller, broker_epoch=broker, topic_states=topics)


def test_the_last_replica_stays_and_does_not_lead(server: EmbeddedServer, topic: str) -> None:
    assert produced(server, topic, 1) == ErrorCode.NONE
    for node in NODES:
        assert result(ask(server, node, stop_request(topic), 4)) == ErrorCode.NONE
    assert server.nodes.leaders(topic) == {0: NO_LEADER}
    server.nodes.move_leader(topic, 0, 3)
    assert len(server.consume(topic)) == 1


def test_a_replica_that_is_only_stopped_stays(server: EmbeddedServer, topic: str) -> None:
    request = stop_request(topic)
    request.topic_states[0].partition_states[0].delete_partition = False
    before = seen(server, topic, 1)
    assert result(ask(server, 1, request, 4)) == ErrorCode.NONE
    assert (seen(server, topic, 1).leader_id, seen(server, topic, 1).leader_epoch) == (1, before.leader_epoch)
    assert result(ask(server, 1, stop_request("no-such-topic"), 4)) == ErrorCode.NONE


def test_stop_replica_is_fenced_by_the_leader_epoch(server: EmbeddedServer, topic: str) -> None:
    epoch = seen(server, topic, 1).leader_epoch
    late = ask(server, 1, stop_request(topic, leader_epoch=epoch - 1), 4)
    assert result(late) == ErrorCode.FENCED_LEADER_EPOCH
    assert seen(server, topic, 1).replica_nodes == [1, 2, 3]
    assert result(ask(server, 1, stop_request(topic, leader_epoch=epoch), 4)) == ErrorCode.NONE
    assert seen(server, topic, 1).replica_nodes == [2, 3]


def update_request(
    topic: str, leader: int, epoch: int, *, controller: int = 1, broker: int = -1
) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(leader=leader, leader_epoch=epoch, replicas=[*NODES])
    topics = [UpdateMetadataTopicState(topic, partition_states=[state])]
    return UpdateMetadataRequest(controller_epoch=controller, broker_epoch=broker, topic_states=topics)


@pytest.mark.parametrize("version", update_metadata.VERSIONS)
def test_update_metadata_moves_a_leader(server: EmbeddedServer, topic: str, version: int) -> None:
    epoch = seen(server, topic, 1).leader_epoch
    for leader, new_epoch in ((2, epoch + 1), (3, epoch + 1), (3, epoch)):
        request = update_request(topic, leader, new_epoch)
        if version < 5:
            request.ungrouped_partition_states = request.topic_states[0].partition_states
            request.ungrouped_partition_states[0].topic_name = topic
            request.topic_states = []
        assert ask(server, 1, request, version).error_code == ErrorCode.NONE
        assert seen(server, topic, 3).leader_id == 2
    assert ask(server, 1, update_request("no-such-topic", 1, 1), 8).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", controlled_shutdown.VERSIONS)
def test_a_node_that_shuts_down_leaves_its_partitions(server: EmbeddedServer, topic: str, version: int) -> None:
    server.nodes.move_leader(topic, 0, 3)
    single = server.create_topic()
    server.nodes.move_leader(single, 0, 3)
    answer = ask(server, 1, ControlledShutdownRequest(3), version)
    assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.NONE, [])
    assert server.nodes.leaders(topic) == {0: 1}
    assert server.nodes.leaders(single) == {0: 3}


def test_partitions_remain_whose_other_replicas_do_not_run(server: EmbeddedServer, topic: str) -> None:
    server.admin.create_topic(f"{topic}-two", 1, replication_factor=2)
    epoch = seen(server, f"{topic}-two", 1).leader_epoch + 1
    ask(server, 3, leader_request(f"{topic}-two", 3, epoch, replicas=(3, 2)), 7)
    server.nodes.stop(2)
    answer = ask(server, 1, ControlledShutdownRequest(3), 3)
    remaining = [(each.topic_name, each.partition_index) for each in answer.remaining_partitions]
    assert (f"{topic}-two", 0) in remaining
    assert (topic, 0) not in remaining
    assert server.nodes.leaders(f"{topic}-two") == {0: 3}


def test_only_the_controller_shuts_nodes_down(server: EmbeddedServer) -> None:
    assert ask(server, 2, ControlledShutdownRequest(3), 3).error_code == ErrorCode.NOT_CONTROLLER
    assert ask(server, 1, ControlledShutdownRequest(9), 3).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    server.nodes.stop(3)
    assert ask(server, 1, ControlledShutdownRequest(3), 3).error_code == ErrorCode.BROKER_NOT_AVAILABLE


FENCED = {
    "LeaderAndIsr": lambda **epochs: (leader_request("no-such-topic", 1, 1, **epochs), 7),
    "StopReplica": lambda **epochs: (stop_request("no-such-topic", **epochs), 4),
    "UpdateMetadata": lambda **epochs: (update_request("no-such-topic", 1, 1, **epochs), 8),
}


@pytest.mark.parametrize("later", FENCED)
@pytest.mark.parametrize("earlier", FENCED)
def test_a_controller_is_fenced_by_the_next(tmp_path: Path, earlier: str, later: str) -> None:
    file = tmp_path / "klamm.toml"
    file.write_text(CONFIG)
    with EmbeddedServer(file=file, nodes=2) as server:
        assert ask(server, 2, *FENCED[earlier](controller=5)).error_code == ErrorCode.NONE
        assert ask(server, 2, *FENCED[later](controller=5)).error_code == ErrorCode.NONE
        assert ask(server, 2, *FENCED[later](controller=4)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        # As in Kafka, each node knows only its own controllers.
        assert ask(server, 1, *FENCED[later](controller=4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("api", FENCED)
def test_requests_for_an_earlier_start_of_a_node_are_refused(server: EmbeddedServer, api: str) -> None:
    epoch = next(node["epoch"] for node in server.nodes.describe() if node["id"] == 3)
    server.nodes.stop(3)
    server.nodes.start(3)
    assert ask(server, 3, *FENCED[api](broker=epoch)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert ask(server, 3, *FENCED[api](broker=epoch + 1)).error_code == ErrorCode.NONE
    ahead, version = FENCED[api](broker=epoch + 2)
    assert ask(server, 3, ahead, version).error_code == ErrorCode.NONE
    ahead.is_k_raft_controller = True
    assert ask(server, 3, ahead, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert ask(server, 1, ControlledShutdownRequest(3, epoch), 3).error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("api", [*FENCED, "ControlledShutdown"])
def test_cluster_action_is_required(server: EmbeddedServer, topic: str, api: str) -> None:
    requests = {
        "LeaderAndIsr": (leader_request(topic, 2, 99), 7),
        "StopReplica": (stop_request(topic), 4),
        "UpdateMetadata": (update_request(topic, 2, 99), 8),
        "ControlledShutdown": (ControlledShutdownRequest(1), 3),
    }
    answer = ask(server, 1, *requests[api], listener="guarded")
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert server.nodes.leaders(topic) == {0: 1}
    assert seen(server, topic, 1).replica_nodes == [1, 2, 3]


def test_the_broker_itself_does_not_offer_these_requests(server: EmbeddedServer) -> None:
    with pytest.raises(ConnectionError):
        ask(server, 1, ControlledShutdownRequest(1), 3, listener="default")
