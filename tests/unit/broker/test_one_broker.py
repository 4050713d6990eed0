"""Tests of APIs for clusters on a single broker: reassignments, log directories, quorum, config resources."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_quorum,
    list_config_resources,
)
from tests.unit.broker.broker_harness import BrokerHarness

METADATA = "__cluster_metadata"


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "error"),
    [
        ("t", 0, [1], ErrorCode.NONE),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 1, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassignments_to_missing_nodes_are_refused(
    harness: BrokerHarness, version: int, topic: str, index: int, replicas: list[int] | None, error: ErrorCode
) -> None:
    harness.create_topic("t")
    partition = alter_partition_reassignments.ReassignablePartition(index, replicas)
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[alter_partition_reassignments.ReassignableTopic(topic, [partition])]
    )
    response = harness.call(request, version)
    assert (response.error_code, response.error_message) == (0, None)
    (found,) = response.responses
    (result,) = found.partitions
    assert (found.name, result.partition_index, result.error_code) == (topic, index, error)


def test_the_flag_for_replication_factors_is_repeated_if_there_are_topics(harness: BrokerHarness) -> None:
    topics = [alter_partition_reassignments.ReassignableTopic("t", [])]
    for wanted, allowed in (([], True), (topics, False)):
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=False, topics=wanted
        )
        assert harness.call(request, 1).allow_replication_factor_change is allowed


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_can_only_move_to_their_own_directory(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t")

    def move(path: str) -> list[tuple[str, int, int]]:
        topics = [
            alter_replica_log_dirs.AlterReplicaLogDirTopic("t", [0, 7]),
            alter_replica_log_dirs.AlterReplicaLogDirTopic("nope", [0]),
        ]
        request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [alter_replica_log_dirs.AlterReplicaLogDir(path, topics)]
        )
        results = harness.call(request, version).results
        return [
            (topic.topic_name, each.partition_index, each.error_code) for topic in results for each in topic.partitions
        ]

    missing, elsewhere = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LOG_DIR_NOT_FOUND
    assert move(str(harness.data_dir)) == [("t", 0, 0), ("t", 7, missing), ("nope", 0, missing)]
    assert move("/elsewhere") == [("t", 0, elsewhere), ("t", 7, elsewhere), ("nope", 0, elsewhere)]


@pytest.mark.parametrize(
    ("length", "index", "error"),
    [(213, 0, 0), (214, 0, ErrorCode.INVALID_TOPIC_EXCEPTION), (213, 10, ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
def test_a_replica_with_too_long_a_name_cannot_move(
    harness: BrokerHarness, length: int, index: int, error: int
) -> None:
    name = "x" * length
    harness.create_topic(name, partitions=11)
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        [
            alter_replica_log_dirs.AlterReplicaLogDir(
                str(harness.data_dir), [alter_replica_log_dirs.AlterReplicaLogDirTopic(name, [index])]
            )
        ]
    )
    (topic,) = harness.call(request, 2).results
    assert [each.error_code for each in topic.partitions] == [error]


def quorum(harness: BrokerHarness, version: int, topic: str, *indexes: int) -> Any:
    partitions = [describe_quorum.RequestPartitionData(index) for index in indexes]
    return harness.call(
        describe_quorum.DescribeQuorumRequest([describe_quorum.RequestTopicData(topic, partitions)]), version
    )


@pytest.mark.parametrize("version", range(3))
def test_quorum_has_one_voter(harness: BrokerHarness, version: int) -> None:
    response = quorum(harness, version, METADATA, 0)
    (partition,) = response.topics[0].partitions
    assert (response.topics[0].topic_name, partition.error_code, partition.leader_id) == (METADATA, 0, 1)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.last_fetch_timestamp) == (1, harness.clock.wall_ms() if version >= 1 else -1)
    found = [(node.node_id, [(each.name, each.host, each.port) for each in node.listeners]) for node in response.nodes]
    assert found == ([(1, [("DEFAULT", "kafka.example.com", 9192)])] if version >= 2 else [])


@pytest.mark.parametrize(("topic", "indexes"), [(METADATA, (1,)), (METADATA, (0, 1)), ("t", (0,))])
def test_other_partitions_have_no_quorum(harness: BrokerHarness, topic: str, indexes: tuple[int, ...]) -> None:
    (found,) = quorum(harness, 2, topic, *indexes).topics
    assert [(each.partition_index, each.error_code) for each in found.partitions] == [
        (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [("1", 8), ("1", 4), ("a", 2), ("b", 2)]),
        ([2], [("a", 2), ("b", 2)]),
        ([4, 4], [("1", 4)]),
        ([8], [("1", 8)]),
        ([16, 32], []),
    ],
)
def test_config_resources_are_listed_by_type(
    harness: BrokerHarness, types: list[int], expected: list[tuple[str, int]]
) -> None:
    harness.create_topic("b")
    harness.create_topic("a")
    response = harness.call(list_config_resources.ListConfigResourcesRequest(types), 1)
    assert response.error_code == 0
    assert [(each.resource_name, each.resource_type) for each in response.config_resources] == expected


def test_config_resources_of_other_kinds_are_refused(harness: BrokerHarness) -> None:
    assert harness.call(list_config_resources.ListConfigResourcesRequest(), 0).config_resources == []
    for kind in (0, 99):
        response = harness.call(list_config_resources.ListConfigResourcesRequest([kind]), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
