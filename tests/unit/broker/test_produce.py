"""Tests of Produce: acks, errors of partitions, limits, and idempotent producers."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.api.pending import NotInlineError
from klamm.wire.compression import Codec
from klamm.wire.messages import produce
from klamm.wire.records import TRANSACTIONAL, batch_checksum
from klamm_broker.log.file_operations import FileOperations
from klamm_broker.log.partition_log import PartitionLog
from tests.unit.broker.broker_harness import BrokerHarness, Reply, fetch_request, records
from tests.waiting import wait_until


def request(acks: int, *data: tuple[str, int, bytes | None], timeout_ms: int = 1000) -> produce.ProduceRequest:
    topics: dict[str, produce.TopicProduceData] = {}
    for name, partition, batch in data:
        topic = topics.setdefault(name, produce.TopicProduceData(name))
        topic.partition_data.append(produce.PartitionProduceData(partition, batch))
    return produce.ProduceRequest(None, acks, timeout_ms, list(topics.values()))


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends_records(harness: BrokerHarness, version: int, acks: int) -> None:
    topic_id = harness.create_topic("t")
    harness.produce("t", b"before")
    wanted = request(acks, ("t", 0, records(b"one", b"two")))
    if version >= 13:
        wanted.topic_data[0].topic_id = topic_id
    response = harness.call(wanted, version)
    (topic,) = response.responses
    assert (topic.topic_id == topic_id) if version >= 13 else (topic.name == "t")
    (partition,) = topic.partition_responses
    assert (partition.index, partition.error_code, partition.base_offset) == (0, 0, 1)
    assert partition.log_append_time_ms == -1
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert harness.fetch("t", 0).high_watermark == 3


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
def test_zstd_is_accepted_only_in_versions_that_know_it(harness: BrokerHarness, version: int, code: ErrorCode) -> None:
    harness.create_topic("t")
    packed = records(b"x" * 100, codec=Codec.ZSTD)
    invalid = ErrorCode.INVALID_RECORD
    for data, expected in ((packed, code), (packed[:-3], invalid), (packed + packed, code or invalid)):
        response = harness.call(request(-1, ("t", 0, data)), version)
        (partition,) = response.responses[0].partition_responses
        assert partition.error_code == expected


@pytest.mark.parametrize(
    ("client_id", "code"), [("x", ErrorCode.INVALID_TOPIC_EXCEPTION), ("__admin_client", ErrorCode.NONE)]
)
def test_clients_cannot_write_to_internal_topics(harness: BrokerHarness, client_id: str, code: ErrorCode) -> None:
    harness.create_topic("__consumer_offsets")
    response = harness.call(request(-1, ("__consumer_offsets", 0, records(b"x"))), 9, client_id)
    assert response.responses[0].partition_responses[0].error_code == code


def test_a_second_batch_that_is_cut_off_is_ignored(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    batch = records(b"one")
    for tail in (b"\0" * 11, batch[:30], batch[:-1]):
        response = harness.call(request(-1, ("t", 0, batch + tail)), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
    assert harness.fetch("t").high_watermark == 3
    assert len(harness.fetch("t").records) == 3 * len(batch)
    (result,) = harness.call(request(-1, ("t", 0, batch + batch)), 9).responses[0].partition_responses
    assert result.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(harness: BrokerHarness, codec: int) -> None:
    harness.create_topic("t")
    batch = bytearray(records(b"x"))
    batch[22] |= codec
    struct.pack_into(">I", batch, 17, batch_checksum(batch))
    (result,) = harness.call(request(-1, ("t", 0, bytes(batch))), 9).responses[0].partition_responses
    assert result.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert harness.fetch("t").high_watermark == 0


def test_a_produce_with_acks_0_gets_no_response(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    reply = harness.send(request(0, ("t", 0, records(b"x"))), 9)
    assert reply.no_response
    assert harness.fetch("t").high_watermark == 1


def test_an_error_of_a_produce_with_acks_0_closes_the_connection(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    reply = harness.send(request(0, ("t", 0, records(b"x")), ("nope", 0, records(b"x"))), 9)
    assert reply.closed is not None
    assert "UNKNOWN_TOPIC_OR_PARTITION" in reply.closed
    assert not reply.no_response
    assert harness.fetch("t").high_watermark == 1


@pytest.mark.parametrize("acks", [2, -2])
def test_invalid_required_acks_are_refused(harness: BrokerHarness, acks: int) -> None:
    harness.create_topic("t")
    wanted = request(acks, ("t", 0, records(b"x")), ("t", 7, records(b"x")), ("none", 0, records(b"x")))
    known, unknown = harness.call(wanted, 9).responses
    partition, unknown_partition = known.partition_responses
    assert (partition.error_code, partition.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert unknown_partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.fetch("t").high_watermark == 0


def test_each_partition_has_its_own_error(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    broken = bytearray(records(b"x"))
    broken[-1] ^= 1
    response = harness.call(
        request(
            -1, ("t", 0, records(b"x")), ("t", 1, bytes(broken)), ("t", 7, records(b"x")), ("nope", 0, records(b"x"))
        ),
        9,
    )
    codes = [[each.error_code for each in topic.partition_responses] for topic in response.responses]
    assert codes == [
        [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]


@pytest.mark.parametrize("is_invalid", [True, False])
def test_errors_of_records_include_the_start_of_the_log(harness: BrokerHarness, is_invalid: bool) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a", b"b", b"c")
    topic = harness.broker.topics.get("t")
    assert topic is not None
    topic.partitions[0].log.delete_records(2)
    bad = bytearray(records(b"x", b"y"))
    if is_invalid:
        struct.pack_into(">i", bad, 57, 1)
        struct.pack_into(">I", bad, 17, batch_checksum(bad))
    else:
        bad[-1] ^= 1
    answer = harness.produce_batches("t", bytes(bad))
    code = ErrorCode.INVALID_RECORD if is_invalid else ErrorCode.CORRUPT_MESSAGE
    assert (answer.error_code, answer.log_start_offset) == (code, 2 if is_invalid else -1)


def test_unknown_topic_id_is_refused(harness: BrokerHarness) -> None:
    wanted = request(-1, ("", 0, records(b"x")))
    wanted.topic_data[0].topic_id = b"\1" * 16
    response = harness.call(wanted, 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_batch_above_the_topics_limit_is_refused(harness: BrokerHarness) -> None:
    harness.create_topic("t", max_message_bytes="1000")
    assert harness.produce("t", b"x" * 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert harness.produce("t", b"x" * 500).error_code == 0


def test_a_compressed_record_above_the_topics_limit_is_refused(harness: BrokerHarness) -> None:
    harness.create_topic("t", max_decompressed_message_bytes="1000")
    for size, codec, code in (
        (2000, Codec.GZIP, ErrorCode.INVALID_RECORD),
        (900, Codec.GZIP, ErrorCode.NONE),
        (2000, Codec.NONE, ErrorCode.NONE),
    ):
        response = harness.call(request(-1, ("t", 0, records(b"small", b"x" * size, codec=codec))), 9)
        assert response.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize("batch", [None, b"", b"\0" * 10, records(b"a") + records(b"b")])
def test_records_that_are_not_exactly_one_batch_are_refused(harness: BrokerHarness, batch: bytes | None) -> None:
    harness.create_topic("t")
    response = harness.call(request(-1, ("t", 0, batch)), 9)
    assert response.responses[0].partition_responses[0].error_code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )
    assert harness.fetch("t").high_watermark == 0


@pytest.mark.parametrize("low_byte", [0, 4, 0x10])
def test_old_message_format_is_refused(harness: BrokerHarness, low_byte: int) -> None:
    """Older messages may have any byte at the place of a batch's attributes."""
    harness.create_topic("t")
    batch = bytearray(records(b"x"))
    batch[16], batch[22] = 1, low_byte
    answer = harness.call(request(-1, ("t", 0, bytes(batch))), 3).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("acks", [-1, 1])
def test_the_only_replica_is_enough_for_any_min_insync_replicas(harness: BrokerHarness, acks: int) -> None:
    harness.create_topic("t", min_insync_replicas="2")
    assert harness.produce("t", b"x", acks=acks).error_code == 0


def test_idempotent_producer_is_deduplicated(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    first = harness.produce("t", b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    second = harness.produce("t", b"b", producer_id=5, producer_epoch=0, base_sequence=1)
    again = harness.produce("t", b"b", producer_id=5, producer_epoch=0, base_sequence=1)
    gap = harness.produce("t", b"z", producer_id=5, producer_epoch=0, base_sequence=9)
    assert (first.base_offset, second.base_offset) == (0, 1)
    assert (again.error_code, again.base_offset) == (0, 1)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert harness.fetch("t").high_watermark == 2


def test_transactional_batches_need_a_transactional_id(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    result = harness.produce("t", b"a", producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    assert result.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_transactional_batch_without_a_transactional_id_refuses_the_whole_request(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    transactional = records(b"a", producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    both = harness.call(request(-1, ("t", 0, records(b"plain")), ("t", 1, transactional)), 9).responses
    results = [each for topic in both for each in topic.partition_responses]
    assert [each.error_code for each in results] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert harness.fetch("t").high_watermark == 0


def test_log_append_time_replaces_timestamps(harness: BrokerHarness) -> None:
    harness.create_topic("t", message_timestamp_type="LogAppendTime")
    assert harness.produce("t", b"a").log_append_time_ms == harness.clock.wall_ms()


def test_timestamp_too_far_ahead_is_refused(harness: BrokerHarness) -> None:
    harness.create_topic("t", message_timestamp_after_max_ms="1000")
    harness.clock.advance_ms(-10_000_000)
    result = harness.produce("t", b"a")
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP


def test_one_request_wakes_a_fetch_of_two_partitions_once(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    waiting = harness.send(fetch_request("t", (0, 0), (1, 0), max_wait_ms=500), 12)
    harness.call(request(-1, ("t", 0, records(b"a")), ("t", 1, records(b"b"))), 9)
    assert [each.high_watermark for each in waiting.response.responses[0].partitions] == [1, 1]


def test_flush_messages_waits_for_the_disk_on_another_thread(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t", 2, flush_messages="1")
    syncing, release, threads = threading.Event(), threading.Event(), []

    def slow(_descriptor: int) -> None:
        threads.append(threading.current_thread().name)
        syncing.set()
        assert release.wait(60)

    monkeypatch.setattr(FileOperations, "fsync", staticmethod(slow))
    request = produce.ProduceRequest(
        None,
        -1,
        1000,
        [
            produce.TopicProduceData(
                "t", partition_data=[produce.PartitionProduceData(index, records(b"x")) for index in (0, 1)]
            )
        ],
    )
    reply = harness.send(request, 9)
    assert syncing.wait(60)
    assert reply.pending
    release.set()
    wait_until(lambda: not reply.pending)
    assert [answer.error_code for answer in reply.response.responses[0].partition_responses] == [0, 0]
    assert set(threads) == {"klamm-log-flusher"}


def test_a_failed_sync_is_answered(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("t", flush_messages="1")

    def failing(_descriptor: int) -> None:
        raise OSError(5, "on purpose")

    monkeypatch.setattr(FileOperations, "fsync", staticmethod(failing))
    data = produce.PartitionProduceData(0, records(b"x"))
    reply = harness.send(
        produce.ProduceRequest(None, -1, 1000, [produce.TopicProduceData("t", partition_data=[data])]), 9
    )
    wait_until(lambda: not reply.pending)
    (answer,) = reply.response.responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    monkeypatch.undo()


def test_an_unexpected_failure_of_a_partition_does_not_affect_others(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t", 2)
    topic = harness.broker.topics.get("t")
    assert topic is not None
    broken = topic.partitions[1].log
    original = PartitionLog.append

    def append(self: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        if self is broken:
            raise ZeroDivisionError
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PartitionLog, "append", append)
    waiting = harness.send(fetch_request("t", (0, 0), max_wait_ms=500), 12)
    assert waiting.pending
    data = [produce.PartitionProduceData(index, records(b"x")) for index in (0, 1)]
    response = harness.call(
        produce.ProduceRequest(None, -1, 1000, [produce.TopicProduceData("t", partition_data=data)]), 9
    )
    answers = response.responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not waiting.pending


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("is_sound", [True, False])
def test_a_batch_that_unpacks_to_much_is_checked_on_another_thread(
    harness: BrokerHarness, acks: int, is_sound: bool
) -> None:
    harness.create_topic("t", 2)
    large = bytearray(records(bytes(2_000_000), codec=Codec.ZSTD))
    if not is_sound:
        large[61:] = b"?" * (len(large) - 61)
        struct.pack_into(">I", large, 17, batch_checksum(large))
    reply = harness.send(request(acks, ("t", 0, records(b"small")), ("t", 1, bytes(large))), 9)
    wait_until(lambda: not reply.pending)
    codes = [0, 0 if is_sound else ErrorCode.CORRUPT_MESSAGE]
    if acks:
        assert [answer.error_code for answer in reply.response.responses[0].partition_responses] == codes
    else:
        assert bool(reply.closed) is not is_sound
    assert [harness.fetch("t", partition=index).high_watermark for index in (0, 1)] == [1, int(is_sound)]


def test_record_validation_can_be_left_to_producers(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open(record_validation="headers")
    harness.create_topic("t")
    batch = bytearray(records(b"x" * 50))
    batch[62:] = b"?" * (len(batch) - 62)
    struct.pack_into(">I", batch, 17, batch_checksum(batch))
    assert harness.call(request(-1, ("t", 0, bytes(batch))), 9).responses[0].partition_responses[0].error_code == 0
    harness.broker.close()


def on_processor(harness: BrokerHarness, message: produce.ProduceRequest, version: int = 9) -> Any:
    """Return the handler's answer on a processor's thread."""
    handler = harness._handlers[message.API_KEY]
    decoded = produce.ProduceRequest.decode(version, bytearray(message.encode(version)))
    reply = Reply(produce, decoded, version)
    reply.inline = True
    return handler.handle(decoded, harness.context(reply, message.API_KEY, version))


@pytest.mark.parametrize(
    ("configs", "batch"),
    [
        ({}, records(bytes(1_000_000), codec=Codec.ZSTD)),
        ({"cleanup_policy": "compact"}, records(*[b"x" * 20] * 100)),
        ({"cleanup_policy": "compact"}, records(b"x", codec=Codec.GZIP)),
        ({"compression_type": "zstd"}, records(b"x")),
        ({"message_timestamp_before_max_ms": "1000"}, records(*[b"x" * 20] * 100)),
    ],
)
def test_batches_that_take_long_are_checked_on_another_thread(
    harness: BrokerHarness, configs: dict[str, str], batch: bytes
) -> None:
    harness.create_topic("t", **configs)
    (topic,) = [one for one in harness.broker.topics.all() if one.name == "t"]
    with pytest.raises(NotInlineError):
        on_processor(harness, request(-1, ("t", 0, batch)))
    assert topic.traffic.produce_requests == 0, "it is counted when it is run"
    assert topic.partitions[0].log.end_offset == 0


def test_bombs_in_many_partitions_are_checked_on_another_thread(harness: BrokerHarness) -> None:
    harness.create_topic("t", 10)
    bomb = records(bytes(100_000), codec=Codec.ZSTD)
    on_processor(harness, request(-1, ("t", 0, bomb)))
    with pytest.raises(NotInlineError):
        on_processor(harness, request(-1, *(("t", number, bomb) for number in range(10))))


def test_a_small_batch_is_checked_on_the_network_thread(harness: BrokerHarness) -> None:
    harness.create_topic("t", message_timestamp_before_max_ms="100000000000000")
    response = on_processor(harness, request(-1, ("t", 0, records(b"x"))))
    assert response.responses[0].partition_responses[0].error_code == 0


def test_the_number_of_records_in_a_batch_is_limited(harness: BrokerHarness) -> None:
    harness.reopen(record_max_count=10)
    harness.create_topic("t")
    for count, code in ((10, ErrorCode.NONE), (11, ErrorCode.MESSAGE_TOO_LARGE)):
        for codec in (Codec.NONE, Codec.GZIP):
            response = harness.call(request(-1, ("t", 0, records(*[b"x"] * count, codec=codec))), 9)
            assert response.responses[0].partition_responses[0].error_code == code
