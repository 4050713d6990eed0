"""Tests of ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers and DescribeLogDirs."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages import (
    delete_records,
    describe_log_dirs,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from klamm.wire.records import Record, encode_batch
from klamm_broker.handlers.k02_list_offsets import find_offsets
from tests.unit.broker.broker_harness import BrokerHarness, Reply

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NOW_MS = 1_700_000_000_000


def append(harness: BrokerHarness, *timestamps: int) -> None:
    """Append one batch with a record per timestamp. Timestamps count from `NOW_MS`."""
    batch = bytes(encode_batch([Record(timestamp_ms=NOW_MS + each, value=b"x") for each in timestamps]))
    data = [produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, batch)])]
    response = harness.call(produce.ProduceRequest(None, -1, 1000, data), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


def find(harness: BrokerHarness, timestamp: int, version: int = 11, **partition: Any) -> tuple[int, int, int, int]:
    wanted = list_offsets.ListOffsetsPartition(timestamp=timestamp, **partition)
    request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic("t", [wanted])])
    (result,) = harness.call(request, version).topics[0].partitions
    return result.error_code, result.timestamp, result.offset, result.leader_epoch


class CountedIndex(int):
    """A partition index that counts how often it is compared."""

    compared = 0

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        CountedIndex.compared += 1
        return int.__eq__(self, other)  # type: ignore[no-any-return, unused-ignore]


def test_the_cost_of_repeated_partitions_grows_linearly(harness: BrokerHarness) -> None:
    count = 2000
    wanted = [list_offsets.ListOffsetsPartition(CountedIndex(index)) for index in (*range(count), 0)]
    request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic("t", wanted)])
    CountedIndex.compared = 0
    response = find_offsets(
        harness.broker, request, harness.context(Reply(list_offsets, request, 11), list_offsets.API_KEY, 11)
    )
    assert CountedIndex.compared < 10 * count
    codes = [result.error_code for result in response.topics[0].partitions]
    missing = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (count - 1)
    assert codes == [ErrorCode.INVALID_REQUEST, *missing]


@pytest.mark.parametrize("version", range(1, 12))
def test_the_first_and_last_offset_are_listed_in_every_version(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t")
    append(harness, 0, 1, 2)
    epoch = 0 if version >= 4 else -1
    assert find(harness, LATEST, version) == (0, -1, 3, epoch)
    assert find(harness, EARLIEST, version) == (0, -1, 0, epoch)


def test_offsets_are_found_by_timestamp(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    append(harness, -1000, -900)
    append(harness, -500, -700, -300)
    assert find(harness, NOW_MS - 5000) == (0, NOW_MS - 1000, 0, 0)
    assert find(harness, NOW_MS - 1000) == (0, NOW_MS - 1000, 0, 0)
    assert find(harness, NOW_MS - 950) == (0, NOW_MS - 900, 1, 0)
    assert find(harness, NOW_MS - 600) == (0, NOW_MS - 500, 2, 0)
    assert find(harness, NOW_MS - 400) == (0, NOW_MS - 300, 4, 0)
    assert find(harness, NOW_MS) == (0, -1, -1, -1)


def test_largest_timestamp_is_found(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert find(harness, MAX_TIMESTAMP) == (0, -1, -1, -1)
    append(harness, -1000, -100, -500)
    append(harness, -900)
    assert find(harness, MAX_TIMESTAMP) == (0, NOW_MS - 100, 1, 0)


def test_the_first_record_has_the_largest_timestamp_if_none_has_one(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    append(harness, -1 - NOW_MS, -1 - NOW_MS)
    append(harness, -1 - NOW_MS)
    assert find(harness, MAX_TIMESTAMP) == (0, -1, 0, 0)
    append(harness, 0)
    assert find(harness, MAX_TIMESTAMP) == (0, NOW_MS, 3, 0)


def test_remote_offsets_are_unknown_without_remote_storage(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    append(harness, 0)
    assert find(harness, EARLIEST_LOCAL) == (0, -1, 0, 0)
    assert find(harness, LATEST_TIERED) == (0, -1, -1, -1)
    assert find(harness, EARLIEST_PENDING_UPLOAD) == (0, -1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING_UPLOAD, 10), (-7, 11)],
)
def test_special_timestamps_of_later_versions_are_refused(harness: BrokerHarness, timestamp: int, version: int) -> None:
    harness.create_topic("t")
    assert find(harness, timestamp, version)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert find(harness, timestamp, version, partition_index=9)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_list_offsets_returns_errors(harness: BrokerHarness) -> None:
    assert find(harness, LATEST)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.create_topic("t")
    assert find(harness, LATEST, partition_index=1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert find(harness, LATEST, current_leader_epoch=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert find(harness, LATEST, current_leader_epoch=-2)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert find(harness, LATEST, current_leader_epoch=0)[0] == 0
    once = list_offsets.ListOffsetsPartition(timestamp=LATEST)
    request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic("t", [once, once])])
    codes = [each.error_code for each in harness.call(request, 7).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]


def test_a_topic_that_is_listed_twice_is_answered_once(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    wanted = [
        list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(index, timestamp=LATEST)])
        for index in (1, 0, 0)
    ]
    (topic,) = harness.call(list_offsets.ListOffsetsRequest(-1, 0, wanted), 7).topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (1, ErrorCode.NONE),
        (0, ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("version", range(2, 5))
def test_offset_for_leader_epoch_returns_the_end_of_an_epoch(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t")
    append(harness, 0, 1)

    def end(partition: int, epoch: int, current: int = -1) -> tuple[int, int, int]:
        wanted = offset_for_leader_epoch.OffsetForLeaderPartition(partition, current, epoch)
        topic = offset_for_leader_epoch.OffsetForLeaderTopic("t", [wanted])
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
        (result,) = harness.call(request, version).topics[0].partitions
        return result.error_code, result.leader_epoch, result.end_offset

    assert end(0, 0) == (0, 0, 2)
    assert end(0, 1) == (0, -1, -1)
    assert end(0, -1) == (0, -1, -1)
    assert end(0, -2) == (0, -2, 0)
    assert end(0, 0, current=-2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end(0, 0, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end(9, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def delete(harness: BrokerHarness, offset: int, topic: str = "t", version: int = 2) -> tuple[int, int]:
    partition = delete_records.DeleteRecordsPartition(0, offset)
    request = delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(topic, [partition])])
    (result,) = harness.call(request, version).topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t")
    append(harness, 0, 1, 2)
    assert delete(harness, 2, version=version) == (0, 2)
    assert delete(harness, 1, version=version) == (0, 2)
    assert harness.fetch("t", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert find(harness, EARLIEST)[2] == 2
    assert delete(harness, -1, version=version) == (0, 3)
    harness.reopen()
    assert find(harness, EARLIEST)[2] == 3


def test_delete_records_refuses_invalid_offsets(harness: BrokerHarness) -> None:
    assert delete(harness, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    harness.create_topic("t")
    harness.create_topic("c", cleanup_policy="compact")
    harness.create_topic("__consumer_offsets")
    assert delete(harness, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(harness, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(harness, 0, "c") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(harness, 0, "__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_active_producers_are_described(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a", b"b", producer_id=5, producer_epoch=2, base_sequence=0)

    def describe(topic: str, partition: int) -> Any:
        request = describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(topic, [partition])])
        return harness.call(request, 0).topics[0].partitions[0]

    (producer,) = describe("t", 0).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 1)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert describe("t", 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe("a b", 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_are_described(harness: BrokerHarness, version: int) -> None:
    harness.create_topic("t", 2)
    harness.create_topic("u")
    append(harness, 0)

    def sizes(topics: list[Any] | None) -> dict[str, list[tuple[int, bool]]]:
        request = describe_log_dirs.DescribeLogDirsRequest(topics)
        (result,) = harness.call(request, version).results
        assert (result.error_code, result.log_dir) == (0, str(harness.data_dir.resolve()))
        assert (result.total_bytes > 0) == (version >= 4)
        return {
            topic.name: [(each.partition_index, each.partition_size > 0) for each in topic.partitions]
            for topic in result.topics
        }

    assert sizes(None) == {"t": [(0, True), (1, False)], "u": [(0, False)]}
    assert sizes([describe_log_dirs.DescribableLogDirTopic("t", [1, 7])]) == {"t": [(1, False)]}
    assert sizes([describe_log_dirs.DescribableLogDirTopic("nope", [0])]) == {}
    again = [describe_log_dirs.DescribableLogDirTopic("t", indexes) for indexes in ([1, 1], [0, 1])]
    assert sizes(again) == {"t": [(1, False), (0, True)]}


def test_a_directory_that_cannot_be_read_has_the_error_of_a_disk(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    aside = harness.data_dir.with_name("aside")
    described = str(harness.data_dir.resolve())
    harness.data_dir.rename(aside)
    response = harness.call(describe_log_dirs.DescribeLogDirsRequest(None), 4)
    aside.rename(harness.data_dir)
    (result,) = response.results
    assert (response.error_code, result.error_code) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert (result.log_dir, result.topics, result.total_bytes, result.usable_bytes) == (described, [], -1, -1)
