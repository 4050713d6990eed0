"""Tests of Metadata, DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages import describe_cluster, describe_topic_partitions, metadata
from klamm_broker.handlers import k03_metadata
from klamm_broker.storage.store import Statement, StoreError
from klamm_broker.topics.auto_creation import MAX_WAITING_PARTITIONS
from klamm_broker.topics.topic_registry import NewTopic
from tests.unit.broker.broker_harness import BrokerHarness, fetch_request

NOT_REQUESTED = -(2**31)
KAFKAS_TOPIC_OPERATIONS = 3576
KAFKAS_CLUSTER_OPERATIONS = 8096


def by_name(*names: str, **fields: object) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=name) for name in names],
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("version", range(14))
def test_every_version_returns_broker_and_topic(harness: BrokerHarness, version: int) -> None:
    topic_id = harness.create_topic("t", 2)
    response = harness.call(by_name("t"), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "kafka.example.com", 9192)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (harness.broker.cluster_id if version >= 2 else None)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (topic_id if version >= 10 else bytes(16))
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, 1)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert partition.leader_epoch == (0 if version >= 7 else -1)


@pytest.mark.parametrize(("version", "expected"), [(0, ["a", "b"]), (1, []), (13, [])])
def test_an_empty_list_returns_no_topics(harness: BrokerHarness, version: int, expected: list[str]) -> None:
    harness.create_topic("b")
    harness.create_topic("a")
    assert [topic.name for topic in harness.call(by_name(), version).topics] == expected


def test_a_null_list_returns_all_topics(harness: BrokerHarness) -> None:
    harness.create_topic("b")
    harness.create_topic("a")
    response = harness.call(metadata.MetadataRequest(None), 12)
    assert [topic.name for topic in response.topics] == ["a", "b"]


def test_topics_are_found_by_id(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")
    unknown = b"\7" * 16
    wanted = [metadata.MetadataRequestTopic(each, None) for each in (topic_id, unknown, topic_id)]
    known, missing = harness.call(metadata.MetadataRequest(wanted), 12).topics
    assert (known.error_code, known.name, known.topic_id) == (0, "t", topic_id)
    assert (missing.error_code, missing.name, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


def test_names_are_ignored_if_there_are_ids(harness: BrokerHarness) -> None:
    wanted = [metadata.MetadataRequestTopic(harness.create_topic("t"), None), metadata.MetadataRequestTopic(name="u")]
    assert codes_of(harness.call(metadata.MetadataRequest(wanted), 12)) == [("t", 0)]
    assert harness.broker.auto_creation.not_under_way(["u"]) == ["u"]


@pytest.mark.parametrize(
    "topic", [metadata.MetadataRequestTopic(b"\7" * 16, "t"), metadata.MetadataRequestTopic(name=None)]
)
def test_topic_ids_before_version_12_are_refused(harness: BrokerHarness, topic: metadata.MetadataRequestTopic) -> None:
    harness.create_topic("t")
    response = harness.call(metadata.MetadataRequest([topic]), 10)
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]


def codes_of(response: metadata.MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


def test_metadata_creates_missing_topics(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(num_partitions=3)
    harness.create_topic("old")
    request = by_name("new", "old", "new")
    assert codes_of(harness.call(request, 12)) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("old", 0)]
    harness.broker.auto_creation.wait()
    new, old = harness.call(request, 12).topics
    assert (new.error_code, new.name, len(new.partitions)) == (0, "new", 3)
    assert (old.error_code, old.name) == (0, "old")
    harness.broker.close()


def test_topics_with_invalid_names_are_not_created(harness: BrokerHarness) -> None:
    harness.create_topic("a.b")
    request = by_name("a b", "a_b", "c.d", "c_d", "good")
    impossible, missing = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [code for _name, code in codes_of(harness.call(request, 12))] == [impossible, *[missing] * 4]
    harness.broker.auto_creation.wait()
    assert [code for _name, code in codes_of(harness.call(request, 12))] == [impossible, missing, 0, missing, 0]


def test_metadata_creates_internal_topics(harness: BrokerHarness) -> None:
    request = by_name("__consumer_offsets", "__cluster_metadata")
    assert [topic.is_internal for topic in harness.call(request, 12).topics] == [True, False]
    harness.broker.auto_creation.wait()
    offsets = harness.broker.topics.get("__consumer_offsets")
    assert offsets is not None
    assert len(offsets.partitions) == 50
    assert offsets.overrides["cleanup.policy"] == "compact"
    assert harness.broker.topics.get("__cluster_metadata") is None


def test_many_names_are_created_in_few_transactions(harness: BrokerHarness) -> None:
    names = [f"t_{number}" for number in range(250)]
    commits = 0
    write_and_wait = harness.broker.store.write_and_wait

    def counting(statements: Sequence[Statement]) -> None:
        nonlocal commits
        commits += 1
        write_and_wait(statements)

    harness.broker.store.write_and_wait = counting  # type: ignore[method-assign]
    harness.call(by_name(*names), 12)
    harness.broker.auto_creation.wait()
    assert commits == 3
    assert [topic.name for topic in harness.broker.topics.all()] == sorted(names)
    harness.reopen()
    assert [topic.name for topic in harness.broker.topics.all()] == sorted(names)


class SlowStore:
    """A store that waits for `go` before each write, which then succeeds or fails."""

    def __init__(self, harness: BrokerHarness, error: StoreError | None = None) -> None:
        self.go = threading.Event()
        self._write_and_wait = harness.broker.store.write_and_wait
        self._error = error
        harness.broker.store.write_and_wait = self.write_and_wait  # type: ignore[method-assign]

    def write_and_wait(self, statements: Sequence[Statement]) -> None:
        assert self.go.wait(30)
        if self._error is not None:
            raise self._error
        self._write_and_wait(statements)


def test_other_requests_do_not_wait_for_auto_creation(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    parked = harness.send(fetch_request("t", (0, 0), max_wait_ms=500), 12)
    store = SlowStore(harness)
    assert codes_of(harness.call(by_name("new"), 12)) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert parked.pending
    harness.advance_ms(500)
    assert not parked.pending
    assert codes_of(harness.call(by_name("t", "new"), 12))[0] == ("t", 0)
    store.go.set()
    harness.broker.auto_creation.wait()
    assert codes_of(harness.call(by_name("new"), 12)) == [("new", 0)]


def test_names_that_are_being_created_are_limited_and_created_once(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(num_partitions=10)
    creation = harness.broker.auto_creation
    store = SlowStore(harness)
    names = [f"t{number}" for number in range(MAX_WAITING_PARTITIONS)]
    free = creation.not_under_way(names)
    assert len(free) == MAX_WAITING_PARTITIONS // 10
    creation.create({name: NewTopic(1, {}) for name in free})
    assert not set(creation.not_under_way(names)) & set(free)
    threading.Thread(target=store.go.set).start()
    creation.close()
    made = {topic.name for topic in harness.broker.topics.all()}
    assert made < set(free), "what waits is given up at the end"
    assert creation.not_under_way(free) == free
    harness.broker.close()


def test_failed_auto_creation_can_be_tried_again(harness: BrokerHarness) -> None:
    store = SlowStore(harness, StoreError("disk full"))
    store.go.set()
    before = harness.broker.topics.generation
    harness.call(by_name("new"), 12)
    harness.broker.auto_creation.wait()
    assert harness.broker.topics.get("new") is None
    assert harness.broker.topics.generation != before, "answers that are kept must not outlive the failure"
    harness.broker.store.write_and_wait = store._write_and_wait  # type: ignore[method-assign]
    harness.call(by_name("new"), 12)
    harness.broker.auto_creation.wait()
    assert harness.broker.topics.get("new") is not None


def test_no_auto_creation_if_the_client_does_not_want_it(harness: BrokerHarness) -> None:
    response = harness.call(by_name("new", "a b", allow_auto_topic_creation=False), 12)
    assert [topic.error_code for topic in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert harness.broker.topics.get("new") is None


def test_no_auto_creation_if_the_broker_does_not_want_it(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(auto_create_topics_enable=False)
    assert harness.call(by_name("new"), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.broker.close()


def test_internal_topics_are_marked_as_such(harness: BrokerHarness) -> None:
    harness.create_topic("__consumer_offsets")
    assert harness.call(by_name("__consumer_offsets"), 12).topics[0].is_internal


def test_authorized_operations_are_returned_only_on_request(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    plain = harness.call(by_name("t"), 8)
    assert plain.cluster_authorized_operations == NOT_REQUESTED
    assert plain.topics[0].topic_authorized_operations == NOT_REQUESTED
    asked = harness.call(
        by_name("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 8
    )
    assert asked.cluster_authorized_operations == KAFKAS_CLUSTER_OPERATIONS
    assert asked.topics[0].topic_authorized_operations == KAFKAS_TOPIC_OPERATIONS


def test_metadata_names_the_rack(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(broker_rack="r1")
    assert harness.call(by_name(), 12).brokers[0].rack == "r1"
    harness.broker.close()


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(harness: BrokerHarness, version: int) -> None:
    response = harness.call(describe_cluster.DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, harness.broker.cluster_id, 1)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "kafka.example.com", 9192, None)
    assert response.cluster_authorized_operations == NOT_REQUESTED
    asked = harness.call(describe_cluster.DescribeClusterRequest(True), version)
    assert asked.cluster_authorized_operations == KAFKAS_CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_of_other_endpoints(harness: BrokerHarness, endpoint_type: int, error: ErrorCode) -> None:
    response = harness.call(describe_cluster.DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert response.error_code == error


def describe_partitions(
    harness: BrokerHarness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        [describe_topic_partitions.TopicRequest(name) for name in names],
        limit,
        None if cursor is None else describe_topic_partitions.RequestCursor(*cursor),
    )
    response = harness.call(request, 0)
    following = response.next_cursor
    return (
        [
            (topic.name, topic.error_code, [each.partition_index for each in topic.partitions])
            for topic in response.topics
        ],
        None if following is None else (following.topic_name, following.partition_index),
    )


def test_describe_topic_partitions_returns_pages(harness: BrokerHarness) -> None:
    harness.create_topic("b", 3)
    harness.create_topic("a", 2)
    assert describe_partitions(harness) == ([("a", 0, [0, 1]), ("b", 0, [0, 1, 2])], None)
    assert describe_partitions(harness, limit=2) == ([("a", 0, [0, 1])], ("b", 0))
    assert describe_partitions(harness, limit=3) == ([("a", 0, [0, 1]), ("b", 0, [0])], ("b", 1))
    assert describe_partitions(harness, limit=3, cursor=("b", 1)) == ([("b", 0, [1, 2])], None)
    assert describe_partitions(harness, limit=0) == ([("a", 0, [0])], ("a", 1))


def test_describe_topic_partitions_continues_after_the_cursors_topic_was_deleted(harness: BrokerHarness) -> None:
    harness.create_topic("c", 2)
    assert describe_partitions(harness, cursor=("b", 1)) == ([("c", 0, [0, 1])], None)


def test_describe_topic_partitions_returns_errors(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    described, following = describe_partitions(harness, "t", "nope", "a b")
    assert described == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ("t", 0, [0]),
    ]
    assert following is None
    for cursor in (("t", -1), ("s", 0), ("u", 0)):
        assert describe_partitions(harness, "t", cursor=cursor) == ([("t", ErrorCode.INVALID_REQUEST, [])], None)


def test_partitions_added_while_metadata_is_built_are_in_later_responses(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    topic = harness.broker.topics.get("t")
    assert topic is not None
    made = k03_metadata._partitions

    def slow(*arguments: Any) -> Any:
        result = made(*arguments)
        monkeypatch.setattr(k03_metadata, "_partitions", made)
        harness.broker.topics.add_partitions(topic, 2)
        return result

    monkeypatch.setattr(k03_metadata, "_partitions", slow)
    wanted = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    harness.call(wanted, 9)
    assert len(harness.call(wanted, 9).topics[0].partitions) == 2
