"""Tests of Fetch: limits, waiting and errors."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages import delete_topics, fetch
from klamm_broker.fetch.reading import READ_AT_ONCE
from klamm_broker.topics.topic import Partition
from tests.unit.broker.broker_harness import BrokerHarness, fetch_request
from tests.waiting import wait_until

READ_COMMITTED = 1


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_what_was_produced(harness: BrokerHarness, version: int) -> None:
    topic_id = harness.create_topic("t")
    harness.produce("t", b"hello")
    response = harness.call(fetch_request(topic_id if version >= 13 else "t", (0, 0)), version)
    (topic,) = response.responses
    assert (topic.topic_id == topic_id) if version >= 13 else (topic.topic == "t")
    (data,) = topic.partitions
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 1, 1)
    assert b"hello" in bytes(data.records)
    assert data.preferred_read_replica == -1


def test_a_fetch_at_the_end_gets_no_records(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a", b"b")
    data = harness.fetch("t", 2)
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (0, 2, b"")


@pytest.mark.parametrize("offset", [-1, 3])
def test_offset_out_of_range_is_refused(harness: BrokerHarness, offset: int) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a", b"b")
    data = harness.fetch("t", offset)
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, b"")


def test_unknown_topics_and_partitions_get_errors(harness: BrokerHarness) -> None:
    topic_id = harness.create_topic("t")

    def error(topic: str | bytes, partition: int, version: int) -> int:
        response = harness.call(fetch_request(topic, (partition, 0)), version)
        code: int = response.responses[0].partitions[0].error_code
        return code

    assert error("nope", 0, 12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error("t", 1, 12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error("t", -1, 12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error(bytes(15) + b"\1", 0, 13) == ErrorCode.UNKNOWN_TOPIC_ID
    assert error(topic_id, 1, 13) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, ErrorCode.NONE), (-2, ErrorCode.NONE), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epoch_of_a_request_is_checked(harness: BrokerHarness, epoch: int, error: ErrorCode) -> None:
    harness.create_topic("t")
    request = fetch_request("t", (0, 0), max_wait_ms=0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert harness.call(request, 12).responses[0].partitions[0].error_code == error


def test_the_first_partition_returns_a_whole_batch_and_the_next_none(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    for partition in range(2):
        harness.produce("t", b"x" * 1000, partition=partition)
    response = harness.call(fetch_request("t", (0, 0), (1, 0), max_bytes=1, partition_max_bytes=1), 12)
    first, second = response.responses[0].partitions
    assert len(first.records) > 1000
    assert len(second.records) == 0
    assert second.high_watermark == 1


def test_response_limit_is_shared_by_partitions(harness: BrokerHarness) -> None:
    harness.create_topic("t", 3)
    size = 0
    for partition in range(3):
        harness.produce("t", b"x" * 1000, partition=partition)
        size = len(harness.fetch("t", partition=partition).records)
    response = harness.call(fetch_request("t", (0, 0), (1, 0), (2, 0), max_bytes=2 * size), 12)
    assert [len(each.records) for each in response.responses[0].partitions] == [size, size, 0]


def test_broker_caps_the_response(tmp_path: object) -> None:
    harness = BrokerHarness(tmp_path)  # type: ignore[arg-type]
    harness.open(fetch_max_bytes=1024)
    harness.create_topic("t", 2)
    for partition in range(2):
        harness.produce("t", b"x" * 1000, partition=partition)
    response = harness.call(fetch_request("t", (0, 0), (1, 0)), 12)
    assert [bool(each.records) for each in response.responses[0].partitions] == [True, False]
    harness.broker.close()


def test_a_fetch_waits_for_data_and_an_append_answers_it(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    waiting = harness.send(fetch_request("t", (0, 0), max_wait_ms=500), 12)
    assert waiting.pending
    harness.produce("t", b"now")
    assert b"now" in bytes(waiting.response.responses[0].partitions[0].records)
    assert harness.broker.fetch_purgatory.watched() == 0


def test_a_waiting_fetch_is_answered_without_data_after_max_wait_ms(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    waiting = harness.send(fetch_request("t", (0, 0), max_wait_ms=500), 12)
    harness.advance_ms(499)
    assert waiting.pending
    harness.advance_ms(1)
    assert bytes(waiting.response.responses[0].partitions[0].records) == b""
    assert harness.broker.fetch_purgatory.watched() == 0


def test_a_fetch_with_max_wait_ms_0_is_answered_at_once(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    assert harness.send(fetch_request("t", (0, 0), max_wait_ms=0), 12).response.responses
    assert harness.send(fetch_request("t", (0, 0), max_wait_ms=500, min_bytes=0), 12).response.responses


def test_a_fetch_waits_until_there_are_min_bytes(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", b"x" * 100, partition=0)
    waiting = harness.send(fetch_request("t", (0, 0), (1, 0), max_wait_ms=500, min_bytes=1000), 12)
    harness.produce("t", b"x" * 100, partition=1)
    assert waiting.pending
    harness.produce("t", b"x" * 1000, partition=1)
    first, second = waiting.response.responses[0].partitions
    assert (first.high_watermark, second.high_watermark) == (1, 2)
    assert len(first.records) + len(second.records) >= 1200


def test_a_fetch_whose_wait_ends_gets_the_existing_data(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    waiting = harness.send(fetch_request("t", (0, 0), max_wait_ms=500, min_bytes=1_000_000), 12)
    harness.produce("t", b"little")
    assert waiting.pending
    harness.advance_ms(500)
    assert b"little" in bytes(waiting.response.responses[0].partitions[0].records)


def reads_of_each(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the partitions' indexes that are read from now on."""
    reads: list[int] = []
    read = Partition.read

    def counted(partition: Partition, *arguments: Any, **options: Any) -> Any:
        reads.append(partition.index)
        return read(partition, *arguments, **options)

    monkeypatch.setattr(Partition, "read", counted)
    return reads


def test_the_cost_of_an_append_is_independent_of_the_partitions_of_a_waiting_fetch(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 100
    harness.create_topic("t", count)
    every = [(index, 0) for index in range(count)]
    waiting = harness.send(fetch_request("t", *every, max_wait_ms=500, min_bytes=2000), 12)
    reads = reads_of_each(monkeypatch)
    for partition in (7, 3, 7):
        harness.produce("t", b"x" * 300, partition=partition)
    assert reads == [7, 3, 7]
    assert waiting.pending
    harness.produce("t", b"x" * 1000, partition=5)
    assert len(reads) == 4 + count, "all of them once, when there is enough"
    found = {data.partition_index: len(data.records) for data in waiting.response.responses[0].partitions}
    assert {index for index, size in found.items() if size} == {3, 5, 7}
    assert sum(found.values()) >= 2000


def test_neither_an_append_nor_the_scheduler_reads_many_partitions(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers, and all fetches whose time is up, would wait for these reads."""
    count = READ_AT_ONCE + 2
    harness.create_topic("t", count)
    every = [(index, 0) for index in range(count)]
    readers: list[threading.Thread] = []
    read = Partition.read

    def noted(partition: Partition, *arguments: Any, **options: Any) -> Any:
        readers.append(threading.current_thread())
        return read(partition, *arguments, **options)

    waiting = harness.send(fetch_request("t", *every, max_wait_ms=500), 12)
    monkeypatch.setattr(Partition, "read", noted)
    harness.produce("t", b"x", partition=7)
    harness.produce("t", b"x", partition=7)
    wait_until(lambda: not waiting.pending)
    assert readers.count(threading.current_thread()) <= 2
    assert len(readers) <= 2 + count
    assert sum(len(each.records) > 0 for each in waiting.response.responses[0].partitions) == 1
    assert harness.broker.fetch_purgatory.watched() == 0

    waiting = harness.send(fetch_request("t", *every[:7], *every[8:], max_wait_ms=500, min_bytes=1000), 12)
    harness.produce("t", b"x", partition=3)
    assert harness.send(fetch_request("t", *every[:7], max_wait_ms=500, min_bytes=1000), 12).pending
    readers.clear()
    harness.advance_ms(500)
    wait_until(lambda: not waiting.pending)
    assert readers.count(threading.current_thread()) <= 7, "the small one alone"
    assert len(waiting.response.responses[0].partitions) == count - 1


def test_bytes_of_a_partition_count_once_even_if_it_changes_often(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    waiting = harness.send(fetch_request("t", (0, 0), (1, 0), max_wait_ms=500, min_bytes=1200), 12)
    for _ in range(3):
        harness.produce("t", b"x" * 200)
        assert waiting.pending
    harness.produce("t", b"x" * 400, partition=1)
    assert sum(len(each.records) for each in waiting.response.responses[0].partitions) >= 1200


def test_an_append_that_reaches_a_limit_is_answered_once_and_with_a_whole_batch(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's `DelayedFetch` counts existing bytes, also those that do not fit with batches of other partitions."""
    harness.create_topic("t", 3)
    every = [(0, 0), (1, 0), (2, 0)]
    request = fetch_request("t", *every, max_wait_ms=500, min_bytes=1500, max_bytes=1500)
    waiting = harness.send(request, 12)
    reads = reads_of_each(monkeypatch)
    harness.produce("t", b"x" * 1000, partition=1)
    harness.produce("t", b"x" * 1000, partition=2)
    assert reads == [1, 2, 0, 1, 2]
    assert [bool(each.records) for each in waiting.response.responses[0].partitions] == [False, True, False]


def test_a_fetch_waits_for_at_most_the_bytes_of_a_response(harness: BrokerHarness) -> None:
    """Hold `min_bytes` to the maximum size of the response, as Kafka does."""
    harness.create_topic("t")
    harness.produce("t", b"x" * 1000)
    request = fetch_request("t", (0, 0), max_wait_ms=500, min_bytes=100_000, max_bytes=1000)
    assert len(harness.send(request, 12).response.responses[0].partitions[0].records) >= 1000


def test_an_append_to_another_partition_does_not_end_the_wait(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    waiting = harness.send(fetch_request("t", (0, 0), max_wait_ms=500), 12)
    harness.produce("t", b"x", partition=1)
    assert waiting.pending
    harness.advance_ms(500)


def test_deleting_the_topic_ends_the_wait(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    waiting = harness.send(fetch_request("t", (0, 0), max_wait_ms=500), 12)
    harness.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
    data = waiting.response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_beside_data_ends_the_wait(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    reply = harness.send(fetch_request("t", (0, 0), (1, 77), max_wait_ms=500), 12)
    assert [each.error_code for each in reply.response.responses[0].partitions] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]


def test_aborted_transactions_are_null_unless_asked_for(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"x")
    assert harness.fetch("t").aborted_transactions is None
    request = fetch_request("t", (0, 0), isolation_level=READ_COMMITTED)
    assert harness.call(request, 12).responses[0].partitions[0].aborted_transactions == []


def test_neighbouring_partitions_of_a_topic_are_in_one_entry(harness: BrokerHarness) -> None:
    harness.create_topic("a", 2)
    harness.create_topic("b")
    request = fetch_request("a", (0, 0), (1, 0))
    request.topics.append(fetch.FetchTopic("b", partitions=[fetch.FetchPartition(0, partition_max_bytes=100)]))
    response = harness.call(request, 12)
    assert [(topic.topic, len(topic.partitions)) for topic in response.responses] == [("a", 2), ("b", 1)]
