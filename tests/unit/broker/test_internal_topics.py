"""Tests of internal topics: they look like Kafka's and show the store, also after crashes and failed writes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from klamm.wire.api_keys import ApiKey
from klamm.wire.errors import ErrorCode
from klamm.wire.messages.delete_groups import DeleteGroupsRequest
from klamm.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from klamm.wire.messages.describe_groups import DescribeGroupsRequest
from klamm.wire.messages.find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.metadata import MetadataRequest
from klamm.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm_broker.broker import Broker
from klamm_broker.broker_settings import BrokerSettings
from klamm_broker.cluster.coordinators import partition_for
from tests.unit.broker.broker_harness import BrokerHarness
from tests.unit.broker.internal_records import raw_records, shown
from tests.unit.broker.state_generators import GENERATORS, ask, prepare
from tests.unit.log.playbook import FailingDisk

OFFSETS: Final = "__consumer_offsets"
GROUPS: Final = ("a", "b", "c")


def find(harness: BrokerHarness, key_type: int = 0) -> None:
    """Find a coordinator, and wait for the topic that this creates."""
    assert harness.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4).coordinators
    harness.broker.auto_creation.wait()


def commit(harness: BrokerHarness, group: str, partition: int, offset: int, topic: str = "t") -> None:
    partitions = [OffsetCommitRequestPartition(partition, offset, 3, committed_metadata=f"at {offset}")]
    request = OffsetCommitRequest(group, -1, "", topics=[OffsetCommitRequestTopic(topic, partitions=partitions)])
    assert ask(harness, request, 8).topics[0].partitions[0].error_code == 0


def committed(harness: BrokerHarness) -> dict[tuple[str, tuple[Any, ...]], tuple[int, int, str]]:
    """Return the result of OffsetFetch, by the keys of the records."""
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in GROUPS])
    return {
        ("offset_commit", (group.group_id, topic.name, each.partition_index)): (
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
        )
        for group in harness.call(asked, 9).groups
        for topic in group.topics
        for each in topic.partitions
    }


def shown_offsets(harness: BrokerHarness) -> dict[tuple[str, tuple[Any, ...]], tuple[int, int, str]]:
    return {
        key: (each.value["offset"], each.value["leader_epoch"], each.value["metadata"])
        for key, each in shown(harness).items()
        if each.kind == "offset_commit"
    }


def prepared(harness: BrokerHarness) -> None:
    harness.create_topic("t", 4)
    harness.create_topic("u", 4)
    find(harness)


def delete(harness: BrokerHarness, name: str) -> None:
    topic = harness.broker.topics.get(name)
    assert topic is not None
    harness.broker.topics.delete(topic)


def step(harness: BrokerHarness, dice: random.Random) -> None:
    """Change an offset or a group."""
    group = dice.choice(GROUPS)
    kind = dice.randrange(10)
    if kind < 6:
        commit(harness, group, dice.randrange(4), dice.randrange(1000), dice.choice("tu"))
    elif kind < 8:
        topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(dice.randrange(4))])]
        ask(harness, OffsetDeleteRequest(group, topics), 0)
    elif kind == 8:
        ask(harness, DeleteGroupsRequest([group]), 2)
    else:
        delete(harness, "u")
        harness.create_topic("u", 4)


# Creation and description


def test_finding_a_coordinator_creates_the_topic_as_in_kafka(harness: BrokerHarness) -> None:
    assert [topic.name for topic in harness.call(MetadataRequest(None), 12).topics] == []
    find(harness)
    (topic,) = harness.call(MetadataRequest(None), 12).topics
    assert (topic.name, topic.is_internal, len(topic.partitions)) == (OFFSETS, True, 50)
    asked = DescribeConfigsRequest([DescribeConfigsResource(2, OFFSETS)])
    configs = {each.name: (each.value, each.config_source) for each in harness.call(asked, 4).results[0].configs}
    of_topic = 1
    assert {name: value for name, (value, source) in configs.items() if source == of_topic} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_partitions_and_segments_are_those_of_the_settings(harness: BrokerHarness) -> None:
    harness.reopen(offsets_topic_num_partitions=3, offsets_topic_segment_bytes=12_345)
    find(harness)
    topic = harness.broker.topics.get(OFFSETS)
    assert topic is not None
    assert (len(topic.partitions), topic.overrides["segment.bytes"]) == (3, "12345")


def test_a_refused_search_for_a_coordinator_creates_no_topic(harness: BrokerHarness) -> None:
    coordinators = harness.call(FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), 4).coordinators
    assert coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    harness.broker.auto_creation.wait()
    assert harness.broker.topics.all() == []


def test_only_partitions_with_records_have_a_directory(harness: BrokerHarness) -> None:
    prepared(harness)
    commit(harness, "a", 0, 1)
    shown(harness)
    harness.advance_ms(60_000)
    harness.reopen()
    harness.advance_ms(60_000)
    assert [each.name for each in harness.data_dir.glob(f"{OFFSETS}-*")] == [f"{OFFSETS}-{partition_for('a', 50)}"]


# Content


def test_offsets_are_written_as_kafka_writes_them(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")
    find(harness)
    commit(harness, "g", 0, 42)
    record = shown(harness)["offset_commit", ("g", "t", 0)]
    assert record.version == 4
    assert record.value == {
        "offset": 42,
        "leader_epoch": 3,
        "metadata": "at 42",
        "commit_timestamp": harness.clock.wall_ms(),
        "expire_timestamp": -1,
        "topic_id": topic_id,
    }
    assert {partition for partition, _key, _value in raw_records(harness, OFFSETS)} == {partition_for("g", 50)}


def test_an_offset_with_its_own_expiry_is_written_in_a_version_with_that_field(harness: BrokerHarness) -> None:
    prepared(harness)
    partitions = [OffsetCommitRequestPartition(0, 1)]
    topics = [OffsetCommitRequestTopic("t", partitions=partitions)]
    ask(harness, OffsetCommitRequest("a", -1, "", None, 5000, topics), 4)
    record = shown(harness)["offset_commit", ("a", "t", 0)]
    assert (record.version, record.value["expire_timestamp"]) == (1, harness.clock.wall_ms() + 5000)


def test_a_generation_of_a_classic_group_is_written(harness: BrokerHarness) -> None:
    prepare(harness)
    find(harness)
    assert GENERATORS[ApiKey.SYNC_GROUP](harness, 0)
    (record,) = (each for each in shown(harness).values() if each.kind == "group_metadata")
    described = harness.call(DescribeGroupsRequest([record.key[0]]), 5).groups[0]
    (member,) = described.members
    assert record.version == 3
    assert (record.value["protocol_type"], record.value["protocol"], record.value["generation"]) == (
        "consumer",
        "range",
        1,
    )
    assert record.value["leader"] == member.member_id
    (written,) = record.value["members"]
    assert (written["member_id"], written["client_id"], written["client_host"]) == (
        member.member_id,
        member.client_id,
        member.client_host,
    )
    assert (written["subscription"], written["assignment"]) == (member.member_metadata, member.member_assignment)
    assert (written["session_timeout"], written["rebalance_timeout"]) == (10_000, 10_000)
    assert written["group_instance_id"] == "instance"


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_agrees_with_the_store_at_all_times(tmp_path: Path, seed: int) -> None:
    """This also holds if the server is killed at any time, and if it stops and starts."""
    dice = random.Random(seed)
    harness = BrokerHarness(tmp_path / "data")
    harness.data_dir.mkdir()
    harness.open()
    prepared(harness)
    for number in range(60):
        step(harness, dice)
        if dice.randrange(4) == 0:
            harness.advance_ms(1000)
        if dice.randrange(10) == 0:
            assert shown_offsets(harness) == committed(harness)
        if dice.randrange(15) == 0:
            harness.reopen()
        if dice.randrange(15) == 0:
            harness = killed(harness, tmp_path / f"after-kill-{number}")
    assert shown_offsets(harness) == committed(harness)
    harness.broker.close()


def killed(harness: BrokerHarness, directory: Path) -> BrokerHarness:
    """Return a broker on the data that a killed broker leaves at this moment."""
    shutil.copytree(harness.data_dir, directory)
    harness.broker.close()
    after = BrokerHarness(directory)
    after._random = harness._random
    after.clock.advance_ms(harness.clock.wall_ms() - after.clock.wall_ms())
    after.open()
    return after


def test_rows_that_are_older_than_the_topic_are_written(harness: BrokerHarness) -> None:
    harness.create_topic("t", 4)
    for group in GROUPS:
        commit(harness, group, 1, 7)
    prepared_offsets = committed(harness)
    find(harness)
    assert shown_offsets(harness) == prepared_offsets
    assert len(prepared_offsets) == len(GROUPS)


def test_a_clean_stop_leaves_nothing_to_compare(harness: BrokerHarness) -> None:
    prepared(harness)
    commit(harness, "a", 0, 1)
    harness.reopen()
    assert harness.broker.store.read("SELECT name FROM internal_topics") == []
    topic = harness.broker.topics.get(OFFSETS)
    assert topic is not None
    harness.advance_ms(1000)
    assert [each for each in topic.partitions if each.opened_log is not None and each.log.end_offset > 1] == []
    assert shown_offsets(harness) == committed(harness)
    assert len(raw_records(harness, OFFSETS)) == 1


def test_a_deleted_topic_is_written_again(harness: BrokerHarness) -> None:
    """The groups survive, because the store has the truth."""
    prepared(harness)
    commit(harness, "a", 0, 1)
    shown(harness)
    delete(harness, OFFSETS)
    commit(harness, "a", 0, 2)
    find(harness)
    assert shown_offsets(harness) == committed(harness)
    assert len(committed(harness)) == 1


def test_keys_move_when_the_topic_gets_more_partitions(harness: BrokerHarness) -> None:
    harness.reopen(offsets_topic_num_partitions=1)
    prepared(harness)
    for group in GROUPS:
        commit(harness, group, 0, 5)
    shown(harness)
    topic = harness.broker.topics.get(OFFSETS)
    assert topic is not None
    harness.broker.topics.add_partitions(topic, 7)
    shown(harness)
    last: dict[tuple[int, bytes], bytes | None] = {}
    for partition, key, value in raw_records(harness, OFFSETS):
        last[partition, key] = value
    assert sorted(partition for (partition, _), value in last.items() if value is not None) == sorted(
        partition_for(group, 7) for group in GROUPS
    )


def test_many_commits_of_an_offset_between_two_turns_become_one_record(harness: BrokerHarness) -> None:
    prepared(harness)
    for offset in range(100):
        commit(harness, "a", 0, offset)
    harness.broker.internal_topics.catch_up()
    assert len(raw_records(harness, OFFSETS)) == 1


def test_a_record_that_is_larger_than_the_topic_takes_is_left_out(harness: BrokerHarness) -> None:
    prepared(harness)
    topic = harness.broker.topics.get(OFFSETS)
    assert topic is not None
    harness.broker.topics.set_overrides(topic, {**topic.overrides, "max.message.bytes": "200"})
    for partition in range(3):
        commit(harness, "a", partition, 1)
    commit(harness, "a" * 200, 0, 1)
    assert sorted(key[1] for key in shown(harness)) == [("a", "t", 0), ("a", "t", 1), ("a", "t", 2)]


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[BrokerHarness, FailingDisk]]:
    disk = FailingDisk()

    class Harness(BrokerHarness):
        def make_broker(self, settings: BrokerSettings) -> Broker:
            return Broker(settings, operations=disk)

    harness = Harness(tmp_path)
    harness.open()
    yield harness, disk
    harness.broker.close()


def test_records_that_a_full_disk_refuses_are_written_later(failing: tuple[BrokerHarness, FailingDisk]) -> None:
    harness, disk = failing
    prepared(harness)
    commit(harness, "a", 0, 1)
    shown(harness)
    disk.free_bytes = 0
    commit(harness, "a", 0, 2)
    commit(harness, "b", 0, 3)
    harness.advance_ms(1000)
    disk.free_bytes = None
    harness.advance_ms(2000)
    assert shown_offsets(harness) == committed(harness)
    assert len(committed(harness)) == 2
