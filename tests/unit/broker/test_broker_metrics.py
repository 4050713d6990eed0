"""Tests of the metrics of bytes and requests, by topic and for all topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm.metrics import HistogramValue
from klamm.wire.compression import Codec
from klamm.wire.messages import delete_topics, produce
from klamm.wire.records import TRANSACTIONAL, Record, encode_batch
from tests.unit.broker.broker_harness import BrokerHarness, fetch_request, records


def counts(harness: BrokerHarness, name: str) -> dict[str, float]:
    """Return the values of one metric by topic. The value for all topics has an empty name."""
    wanted = f"kafka.server:type=BrokerTopicMetrics,name={name}"
    (family,) = harness.listener.services.metrics.collect(lambda each: each == wanted)
    found = {}
    for sample in family.samples:
        assert not isinstance(sample.value, HistogramValue)
        found[sample.labels.get("topic", "")] = sample.value
    return found


def test_bytes_in_and_out_are_counted_by_topic(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.create_topic("u")
    harness.produce("t", b"a", b"b", b"c")
    harness.produce("u", b"d")
    size = len(records(b"a", b"b", b"c"))
    assert counts(harness, "MessagesInPerSec") == {"": 4, "t": 3, "u": 1}
    assert counts(harness, "BytesInPerSec")["t"] == size
    assert counts(harness, "BytesOutPerSec") == {"": 0, "t": 0, "u": 0}
    harness.fetch("t")
    harness.fetch("t", 3)
    assert counts(harness, "BytesOutPerSec") == {"": size, "t": size, "u": 0}
    assert counts(harness, "TotalFetchRequestsPerSec")["t"] == 2


@pytest.fixture
def produced(harness: BrokerHarness) -> Callable[..., tuple[ErrorCode, float, float]]:
    """Return a function that produces to the topic `t`, or another.

    It returns the error, and the increase of both counts.
    """

    def produce_one(batch: bytes | None, *, acks: int = -1, version: int = 9, topic: str = "t", index: int = 0) -> Any:
        def totals() -> tuple[float, float]:
            names = ("TotalProduceRequestsPerSec", "FailedProduceRequestsPerSec")
            total, failed = (counts(harness, name)[""] for name in names)
            return total, failed

        before = totals()
        data = [produce.PartitionProduceData(index, batch)]
        asked = produce.ProduceRequest(None, acks, 1000, [produce.TopicProduceData(topic, partition_data=data)])
        (answer,) = harness.call(asked, version).responses[0].partition_responses
        return ErrorCode(answer.error_code), *(after - each for after, each in zip(totals(), before, strict=True))

    return produce_one


def test_refused_requests_are_counted_in_the_total_and_unexpected_failures_as_failed(
    harness: BrokerHarness, produced: Callable[..., tuple[ErrorCode, float, float]]
) -> None:
    harness.create_topic("t", max_message_bytes="1000", message_timestamp_after_max_ms="1000")
    harness.create_topic("__consumer_offsets")
    spoilt = bytearray(records(b"a"))
    spoilt[-1] ^= 1
    assert produced(records(b"a"), acks=1) == (ErrorCode.NONE, 1, 0)
    assert produced(records(b"a"), topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, 1, 0)
    assert produced(bytes(spoilt), acks=1) == (ErrorCode.CORRUPT_MESSAGE, 1, 0)
    assert produced(records(b"a" * 2000), acks=1) == (ErrorCode.MESSAGE_TOO_LARGE, 1, 0)
    harness.clock.advance_ms(-10_000_000)
    assert produced(records(b"a"), acks=1) == (ErrorCode.INVALID_TIMESTAMP, 1, 1)
    assert counts(harness, "TotalProduceRequestsPerSec") == {"": 5, "t": 4, "__consumer_offsets": 1}
    assert counts(harness, "FailedProduceRequestsPerSec")["t"] == 1
    assert counts(harness, "MessagesInPerSec")["t"] == 1


def test_a_produce_that_reaches_no_partition_is_not_counted(
    harness: BrokerHarness, produced: Callable[..., tuple[ErrorCode, float, float]]
) -> None:
    harness.create_topic("t")
    zstd = encode_batch([Record(0, 0, None, b"a")], codec=Codec.ZSTD)
    transactional = records(b"a", producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    assert produced(None) == (ErrorCode.INVALID_RECORD, 0, 0)
    assert produced(zstd, version=6) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0, 0)
    assert produced(transactional) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0, 0)
    assert produced(records(b"a"), acks=5) == (ErrorCode.INVALID_REQUIRED_ACKS, 0, 0)
    assert produced(records(b"a"), index=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0)
    assert produced(records(b"a"), topic="nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0)
    assert counts(harness, "BytesInPerSec")["t"] == 0


@pytest.fixture
def fetched(harness: BrokerHarness) -> Callable[..., tuple[ErrorCode, float, float]]:
    """Return a function that fetches from the topic `t`. It returns the error, and the increase of both counts."""

    def fetch_one(offset: int = 0, *, partition: int = 0, epoch: int = -1) -> tuple[ErrorCode, float, float]:
        names = ("TotalFetchRequestsPerSec", "FailedFetchRequestsPerSec")
        before = [counts(harness, name)["t"] for name in names]
        asked = fetch_request("t", (partition, offset), max_wait_ms=0)
        asked.topics[0].partitions[0].current_leader_epoch = epoch
        error = ErrorCode(harness.call(asked, 12).responses[0].partitions[0].error_code)
        total, failed = (counts(harness, name)["t"] - each for name, each in zip(names, before, strict=True))
        return error, total, failed

    return fetch_one


@pytest.mark.interpreted
def test_reads_are_counted_and_unexpected_failures_as_failed(
    harness: BrokerHarness, fetched: Callable[..., tuple[ErrorCode, float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    assert fetched() == (ErrorCode.NONE, 1, 0)
    assert fetched(partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0)
    assert fetched(epoch=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, 1, 0)
    assert fetched(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1, 0)
    topic = harness.broker.topics.get("t")
    assert topic is not None
    for raised, error, failed in (
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR, 0),
        (KafkaError(ErrorCode.CORRUPT_MESSAGE), ErrorCode.CORRUPT_MESSAGE, 1),
    ):
        monkeypatch.setattr(topic.partitions[0].log, "_tail", _Unreadable(raised), raising=True)
        assert fetched() == (error, 1, failed)
    monkeypatch.setattr(topic.partitions[0].log, "_tail", _Unreadable(ValueError("garbage")))
    with pytest.raises(ValueError, match="garbage"):
        fetched()
    monkeypatch.undo()
    assert counts(harness, "TotalFetchRequestsPerSec")["t"] == 6
    assert counts(harness, "FailedFetchRequestsPerSec")["t"] == 2


class _Unreadable:
    """A log whose end cannot be read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> Iterator[int]:
        raise self._error


def test_a_fetch_that_waits_is_counted_once(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    reply = harness.send(fetch_request("t", (0, 0), min_bytes=1000, max_wait_ms=500), 12)
    harness.produce("t", b"a")
    assert reply.pending
    harness.produce("t", b"a" * 1000)
    assert not reply.pending
    assert counts(harness, "TotalFetchRequestsPerSec")["t"] == 1


def test_the_count_for_all_topics_never_decreases(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a")
    harness.call(delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert counts(harness, "MessagesInPerSec") == {"": 1}
