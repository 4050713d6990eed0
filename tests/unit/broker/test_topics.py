"""Tests of CreateTopics, DeleteTopics and CreatePartitions, and of topics after restarts and crashes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.messages import create_partitions, create_topics, delete_topics
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.storage.store import Store
from tests.unit.broker.broker_harness import BrokerHarness


def creatable(name: str = "t", partitions: int = 1, replication_factor: int = 1, **fields: Any) -> Any:
    return create_topics.CreatableTopic(name, partitions, replication_factor, **fields)


def create(harness: BrokerHarness, *topics: Any, version: int = 7, **fields: Any) -> list[Any]:
    request = create_topics.CreateTopicsRequest(list(topics), **fields)
    results: list[Any] = harness.call(request, version).topics
    return results


def assigned(*assignments: tuple[int, list[int]]) -> list[Any]:
    return [create_topics.CreatableReplicaAssignment(index, brokers) for index, brokers in assignments]


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(harness: BrokerHarness, version: int) -> None:
    (result,) = create(harness, creatable("t", 3), version=version)
    topic = harness.broker.topics.get("t")
    assert topic is not None
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert len(topic.partitions) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert {config.name: config.value for config in result.configs}["cleanup.policy"] == "delete"
    assert result.topic_id == (topic.id if version >= 7 else bytes(16))
    harness.advance_ms(60)
    for index in range(3):
        assert (harness.data_dir / f"t-{index}").is_dir()


def test_topic_gets_default_partitions_and_replicas(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(num_partitions=4)
    (result,) = create(harness, creatable("t", -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)
    harness.broker.close()


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (creatable("", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable(".", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("a/b", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("a\n", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("x" * 250, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("here_1", 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (creatable("here.1", 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (creatable("__cluster_metadata", 1), ErrorCode.INVALID_REQUEST),
        (creatable("t", 0), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", -2), ErrorCode.INVALID_PARTITIONS),
        (creatable("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (creatable("t", 1, -1, assignments=assigned((0, [1]))), ErrorCode.INVALID_REQUEST),
        (creatable("t", -1, 1, assignments=assigned((0, [1]))), ErrorCode.INVALID_REQUEST),
        (creatable("t", -1, -1, assignments=assigned((0, []))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments=assigned((0, [2]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments=assigned((0, [1, 1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments=assigned((1, [1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable("t", -1, -1, assignments=assigned((0, [1]), (0, [1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (creatable(configs=[create_topics.CreatableTopicConfig("nope", "1")]), ErrorCode.INVALID_CONFIG),
        (creatable(configs=[create_topics.CreatableTopicConfig("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
        (creatable(configs=[create_topics.CreatableTopicConfig("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_invalid_topics_are_refused(harness: BrokerHarness, topic: Any, error: ErrorCode, validate_only: bool) -> None:
    harness.create_topic("here.1")
    (result,) = create(harness, topic, validate_only=validate_only)
    assert result.error_code == error
    assert result.error_message
    assert [each.name for each in harness.broker.topics.all()] == ["here.1"]


def test_manual_assignment_sets_the_number_of_partitions(harness: BrokerHarness) -> None:
    (result,) = create(harness, creatable("t", -1, -1, assignments=assigned((1, [1]), (0, [1]))))
    assert (result.error_code, result.num_partitions) == (0, 2)


def test_a_name_that_occurs_twice_is_refused(harness: BrokerHarness) -> None:
    twice, once = create(harness, creatable("a"), creatable("a"), creatable("b"))
    assert (twice.name, twice.error_code) == ("a", ErrorCode.INVALID_REQUEST)
    assert (once.name, once.error_code) == ("b", 0)
    assert harness.broker.topics.get("a") is None


def test_validate_only_changes_nothing(harness: BrokerHarness) -> None:
    (result,) = create(harness, creatable("t", 2), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, bytes(16))
    assert harness.broker.topics.get("t") is None
    assert not (harness.data_dir / "t-0").exists()


def test_configs_of_a_new_topic_are_described_as_they_were_written(harness: BrokerHarness) -> None:
    written = {"retention.ms": " 5 ", "preallocate": "TRUE"}
    configs = [create_topics.CreatableTopicConfig(*each) for each in written.items()]
    (result,) = create(harness, creatable(configs=configs))
    assert {each.name: each.value for each in result.configs if each.name in written} == written


def test_configs_are_described_with_their_source(harness: BrokerHarness) -> None:
    (result,) = create(harness, creatable(configs=[create_topics.CreatableTopicConfig("retention.ms", "5000")]))
    described = {config.name: (config.value, config.config_source) for config in result.configs}
    assert described["retention.ms"] == ("5000", 1)
    assert described["segment.bytes"] == ("1073741824", 5)


# Deletion


@pytest.mark.parametrize(
    "topics",
    [
        [creatable("a b", 1), creatable("t", 10_000)],
        [creatable("t", -1), creatable("u", 10_000)],
        [creatable("t", -1, -1, assignments=assigned(*[(index, [1]) for index in range(10_001)]))],
    ],
)
def test_too_many_partitions_in_one_request_are_refused(harness: BrokerHarness, topics: list[Any]) -> None:
    for version, validate_only in ((2, False), (7, True)):
        results = create(harness, *topics, version=version, validate_only=validate_only)
        assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * len(topics)
        assert results[0].error_message == "Excessively large number of partitions per request."
    assert harness.broker.topics.all() == []


def test_invalid_numbers_of_partitions_are_not_summed_up(harness: BrokerHarness) -> None:
    topics = [creatable("t", -5), creatable("u", 10_000)]
    codes = [result.error_code for result in create(harness, *topics, validate_only=True)]
    assert codes == [ErrorCode.INVALID_PARTITIONS, 0]


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_in_every_version(harness: BrokerHarness, version: int) -> None:
    topic_id = harness.create_topic("t")
    if version >= 6:
        request = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState("t")], timeout_ms=1000)
    else:
        request = delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    (result,) = harness.call(request, version).responses
    assert (result.name, result.error_code) == ("t", 0)
    assert result.topic_id == (topic_id if version >= 6 else bytes(16))
    assert harness.broker.topics.get("t") is None
    assert harness.broker.topics.by_id(topic_id) is None
    assert not (harness.data_dir / "t-0").exists()


def delete(harness: BrokerHarness, *states: Any) -> list[Any]:
    results: list[Any] = harness.call(delete_topics.DeleteTopicsRequest(list(states), timeout_ms=1000), 6).responses
    return results


def test_topics_are_deleted_by_id(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")
    (result,) = delete(harness, delete_topics.DeleteTopicState(None, topic_id))
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, 0)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (delete_topics.DeleteTopicState("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (delete_topics.DeleteTopicState(None, b"\7" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (delete_topics.DeleteTopicState(None), ErrorCode.INVALID_REQUEST),
        (delete_topics.DeleteTopicState("t", b"\7" * 16), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_deletions_are_refused(harness: BrokerHarness, state: Any, error: ErrorCode) -> None:
    harness.create_topic("t")
    assert [result.error_code for result in delete(harness, state)] == [error]
    assert harness.broker.topics.get("t") is not None


def test_each_deletion_of_a_missing_topic_is_answered(harness: BrokerHarness) -> None:
    nothing = delete_topics.DeleteTopicState(None)
    results = delete(harness, nothing, nothing)
    assert [(each.name, each.error_code) for each in results] == [(None, ErrorCode.INVALID_REQUEST)] * 2


def test_a_deletion_that_names_a_topic_twice_is_answered(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    state = delete_topics.DeleteTopicState("t")
    assert [result.error_code for result in delete(harness, state, state)] == [ErrorCode.INVALID_REQUEST]
    assert harness.broker.topics.get("t") is not None


def by_name_and_id(topic_id: bytes, *which: str) -> list[Any]:
    states = {"name": delete_topics.DeleteTopicState("t"), "id": delete_topics.DeleteTopicState(None, topic_id)}
    return [states[each] for each in which]


@pytest.mark.parametrize("which", [("name", "id"), ("id", "name")])
def test_a_deletion_may_not_have_both_name_and_id(harness: BrokerHarness, which: tuple[str, str]) -> None:
    topic_id = harness.create_topic("t")
    (result,) = delete(harness, *by_name_and_id(topic_id, *which))
    assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, ErrorCode.INVALID_REQUEST)
    assert harness.broker.topics.get("t") is not None


def test_a_deletion_by_id_twice_and_by_name_is_answered(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")
    results = delete(harness, *by_name_and_id(topic_id, "id", "id", "name"))
    assert [(each.name, each.error_code) for each in results] == [
        (None, ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert harness.broker.topics.get("t") is not None


def test_a_deletion_by_name_twice_and_by_id_is_answered(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")
    results = delete(harness, *by_name_and_id(topic_id, "name", "name", "id"))
    assert [(each.name, each.error_code) for each in results] == [("t", ErrorCode.INVALID_REQUEST), ("t", 0)]
    assert harness.broker.topics.get("t") is None


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletions_can_be_disabled(tmp_path: Path, version: int, error: ErrorCode) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(delete_topic_enable=False)
    harness.create_topic("t")
    (result,) = harness.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), version).responses
    assert result.error_code == error
    assert harness.broker.topics.get("t") is not None
    harness.broker.close()


def test_a_new_topic_of_a_deleted_name_is_empty(harness: BrokerHarness) -> None:
    first = harness.create_topic("t")
    harness.produce("t", b"old")
    delete(harness, delete_topics.DeleteTopicState("t"))
    second = harness.create_topic("t")
    assert first != second
    assert harness.fetch("t").high_watermark == 0
    harness.reopen()
    assert harness.fetch("t").high_watermark == 0


# More partitions


def add(
    harness: BrokerHarness, count: int, assignments: list[Any] | None = None, *, name: str = "t", **fields: Any
) -> Any:
    topic = create_partitions.CreatePartitionsTopic(name, count, assignments)
    fields = {"timeout_ms": 1000} | fields
    (result,) = harness.call(create_partitions.CreatePartitionsRequest([topic], **fields), 3).results
    return result


def on(*brokers: int) -> create_partitions.CreatePartitionsAssignment:
    return create_partitions.CreatePartitionsAssignment(list(brokers))


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", b"x", partition=1)
    request = create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic("t", 3, None)], timeout_ms=1000
    )
    (result,) = harness.call(request, version).results
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert harness.fetch("t", partition=1).high_watermark == 1
    assert harness.produce("t", b"y", partition=2).error_code == 0
    harness.reopen()
    assert harness.fetch("t", partition=2).high_watermark == 1


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (1_000_000, None, ErrorCode.INVALID_PARTITIONS),
        (4, [on(1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [on(2)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [on()], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_numbers_of_partitions_are_refused(
    harness: BrokerHarness, count: int, assignments: list[Any] | None, error: ErrorCode
) -> None:
    harness.create_topic("t", 2)
    assert add(harness, count, assignments).error_code == error
    topic = harness.broker.topics.get("t")
    assert topic is not None
    assert len(topic.partitions) == 2


def test_create_partitions_of_an_unknown_topic(harness: BrokerHarness) -> None:
    assert add(harness, 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_validating_create_partitions_changes_nothing(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    assert add(harness, 3, [on(1)], validate_only=True).error_code == 0
    assert not (harness.data_dir / "t-2").exists()


# Restarts and crashes


def test_topics_survive_a_restart(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t", 2, retention_ms="5000")
    harness.produce("t", b"x", partition=1)
    harness.reopen()
    topic = harness.broker.topics.get("t")
    assert topic is not None
    assert (topic.id, len(topic.partitions), topic.overrides) == (topic_id, 2, {"retention.ms": "5000"})
    assert topic.partitions[0].log.config.retention_ms == 5000
    assert b"x" in bytes(harness.fetch("t", partition=1).records)
    assert "1 topic, 2 partitions" in harness.broker.describe()


def test_missing_directory_of_a_new_topic_is_created_at_the_start(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    harness.advance_ms(60)
    harness.broker.close()
    shutil.rmtree(harness.data_dir / "t-1")
    harness.open()
    assert harness.produce("t", b"x", partition=1).error_code == 0


def test_directories_of_a_deleted_topic_are_removed_after_a_crash(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t", 2)
    harness.create_topic("other")
    harness.produce("t", b"x")
    harness.broker.close()
    store = Store(harness.data_dir / "klamm.db")
    store.open()
    store.write_and_wait(
        [
            ("DELETE FROM topics WHERE name = ?", ("t",)),
            ("INSERT INTO cluster (key, value) VALUES (?, ?)", (f"deleted-topic/{topic_id.hex()}", "t")),
        ]
    )
    store.close()
    harness.open()
    assert [topic.name for topic in harness.broker.topics.all()] == ["other"]
    assert not (harness.data_dir / "t-0").exists()
    assert not (harness.data_dir / "t-1").exists()
    assert harness.broker.store.read("SELECT * FROM cluster WHERE key LIKE 'deleted-topic/%'") == []


def test_directories_without_a_store_are_adopted(harness: BrokerHarness, caplog: pytest.LogCaptureFixture) -> None:
    topic_id = harness.create_topic("t", 2)
    harness.produce("t", b"x", partition=1)
    harness.broker.close()
    for path in harness.data_dir.glob("klamm.db*"):
        path.unlink()
    with caplog.at_level(logging.WARNING, "klamm.broker.topics"):
        harness.open()
    topic = harness.broker.topics.get("t")
    assert topic is not None
    assert (topic.id, len(topic.partitions)) == (topic_id, 2)
    assert b"x" in bytes(harness.fetch("t", partition=1).records)
    assert "it is adopted" in caplog.text


def test_a_directory_that_cannot_be_created_fails_only_its_partitions_requests(harness: BrokerHarness) -> None:
    # A file is at the place of the second partition's directory.
    (harness.data_dir / "t-1").write_text("in the way")
    (result,) = create(harness, creatable("t", 3))
    assert result.error_code == 0
    harness.advance_ms(60)
    assert harness.produce("t", b"x", partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.produce("t", b"x", partition=2).error_code == 0
    (harness.data_dir / "t-1").unlink()
    assert harness.produce("t", b"x", partition=1).error_code == 0
    harness.reopen()
    assert [harness.fetch("t", partition=index).high_watermark for index in range(3)] == [0, 1, 1]


def test_the_name_stays_free_if_the_store_is_full(harness: BrokerHarness) -> None:
    connection = harness.broker.store._connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    configs = [create_topics.CreatableTopicConfig("retention.ms", "5")]
    wanted = [creatable(f"t{number:03d}" + "x" * 200, 3, configs=configs) for number in range(100)]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for result in create(harness, *wanted):
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert result.error_message == "The broker's metadata cannot be stored or read at present."
    assert harness.broker.topics.all() == []
    connection.execute("PRAGMA max_page_count = 1000000")
    assert {result.error_code for result in create(harness, *wanted)} == {0}
    harness.reopen()
    assert [topic.name for topic in harness.broker.topics.all()] == [each.name for each in wanted]


def test_a_change_whose_timeout_passes_before_its_turn_is_not_made(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    late = ErrorCode.REQUEST_TIMED_OUT
    for timeout_ms in (0, -1):
        assert create(harness, creatable("u"), timeout_ms=timeout_ms)[0].error_code == late
        assert add(harness, 3, timeout_ms=timeout_ms).error_code == late
        request = delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms)
        assert harness.call(request, 5).responses[0].error_code == late
    (topic,) = harness.broker.topics.all()
    assert (topic.name, len(topic.partitions)) == ("t", 1)


def test_a_request_syncs_once_for_all_its_partitions(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[object] = []
    monkeypatch.setattr(FileOperations, "fsync", staticmethod(syncs.append))
    writes: list[object] = []
    original = harness.broker.store.write_and_wait
    monkeypatch.setattr(harness.broker.store, "write_and_wait", lambda rows: (writes.append(rows), original(rows)))
    create(harness, creatable("many", 500), *(creatable(f"t{number}") for number in range(99)))
    assert add(harness, 2, name="t0").error_code == 0
    assert not syncs
    assert len(writes) == 2
    harness.advance_ms(60)
    names = ["many", *(f"t{number}" for number in range(99))]
    harness.call(delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 5)
    assert len(writes) == 3
    assert len(syncs) < 10


def test_a_name_is_free_once_its_directories_are_removed(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    harness.produce("t", b"old")
    original = harness.broker.logs.delete_all
    meanwhile: list[int] = []

    def delete_all(keys: Any) -> Any:
        meanwhile.append(create(harness, creatable("t"))[0].error_code)
        meanwhile.append(create(harness, creatable("other"))[0].error_code)
        return original(keys)

    monkeypatch.setattr(harness.broker.logs, "delete_all", delete_all)
    request = delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    assert harness.call(request, 5).responses[0].error_code == 0
    assert meanwhile == [ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    harness.create_topic("t")
    assert harness.fetch("t").high_watermark == 0


def test_a_deleted_topic_cannot_be_changed(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    topic = harness.broker.topics.get("t")
    assert topic is not None
    harness.broker.topics.delete(topic)
    registry = harness.broker.topics
    changes: list[Callable[[], None]] = [
        lambda: registry.delete(topic),
        lambda: registry.add_partitions(topic, 5),
        lambda: registry.set_overrides(topic, {}),
    ]
    for change in changes:
        with pytest.raises(KafkaError) as caught:
            change()
        assert caught.value.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deletion_that_fails_midway_leaves_nothing_for_the_next_topic(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t", 3)
    for partition in range(3):
        harness.produce("t", b"old", partition=partition)
    operations = harness.broker.logs._context.operations
    original = operations.rename

    def rename(source: Path, target: Path) -> None:
        if source.name == "t-1":
            raise OSError(5, "on purpose")
        original(source, target)

    monkeypatch.setattr(type(operations), "rename", staticmethod(rename))
    assert (
        harness.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5).responses[0].error_code
        == 0
    )
    monkeypatch.undo()

    harness.create_topic("t", 3)
    harness.produce("t", b"new", partition=1)
    for _ in range(2):
        assert [bytes(harness.fetch("t", partition=partition).records or b"") for partition in (0, 2)] == [b"", b""]
        assert harness.fetch("t", partition=1).high_watermark == 1
        harness.reopen()


def test_a_directory_of_a_deleted_topic_that_lost_its_id_is_set_aside(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")
    harness.produce("t", b"old")
    harness.broker.store.write_and_wait(
        [("DELETE FROM topics", ()), ("INSERT INTO cluster VALUES (?, 't')", (f"deleted-topic/{topic_id.hex()}",))]
    )
    harness.broker.close()
    (harness.data_dir / "t-0" / "partition.metadata").write_bytes(b"")

    harness.open()

    assert any(path.name.endswith("-stray") for path in harness.data_dir.iterdir())
    harness.create_topic("t")
    assert harness.fetch("t").high_watermark == 0


def lose_the_store(harness: BrokerHarness) -> None:
    harness.broker.close()
    for path in harness.data_dir.glob("klamm.db*"):
        path.unlink()
    harness.open()


def test_adopted_directories_keep_their_configs(harness: BrokerHarness) -> None:
    harness.create_topic("compacted", cleanup_policy="compact")
    harness.create_topic("changed", retention_ms="7")
    harness.create_topic("plain", retention_ms="7")
    for name, overrides in (("changed", {"retention.ms": "9"}), ("plain", {})):
        topic = harness.broker.topics.get(name)
        assert topic is not None
        harness.broker.topics.set_overrides(topic, overrides)
    harness.advance_ms(60)
    for _ in range(2):
        lose_the_store(harness)
        assert {topic.name: topic.overrides for topic in harness.broker.topics.all()} == {
            "compacted": {"cleanup.policy": "compact"},
            "changed": {"retention.ms": "9"},
            "plain": {},
        }


def test_directories_with_an_invalid_copy_of_their_configs_are_adopted(harness: BrokerHarness) -> None:
    harness.create_topic("t", retention_ms="7")
    harness.advance_ms(60)
    (harness.data_dir / "t-0" / "topic.configs").write_text("[")
    lose_the_store(harness)
    topic = harness.broker.topics.get("t")
    assert topic is not None
    assert topic.overrides == {}


def test_producer_ids_start_above_those_in_the_logs(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"x", producer_id=41, producer_epoch=0, base_sequence=0)
    lose_the_store(harness)
    assert harness.broker.producer_ids.allocate() == 42


def test_offsets_are_deleted_in_the_same_transaction_as_their_topic(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    harness.broker.store.write_and_wait([("INSERT INTO offsets VALUES ('g', 't', 0, 5, -1, '', 1, NULL, '')", ())])
    topic = harness.broker.topics.get("t")
    assert topic is not None
    monkeypatch.setattr(harness.broker.topics, "_on_partitions_gone", lambda _topics: None)
    harness.broker.topics.delete(topic)
    assert harness.broker.store.read("SELECT * FROM offsets") == []
