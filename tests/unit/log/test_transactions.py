"""Tests of transactions in a log: markers, the last stable offset, and aborted transactions of a read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.batch_headers import batch_checksum
from klamm.wire.records import TRANSACTIONAL, ControlRecordType, Record, encode_batch, iterate_batches
from klamm_broker.log.files import FileRegion
from tests.unit.log.playbook import START_MS, LogPlaybook

OpenLog = Callable[..., LogPlaybook]


class Producer:
    """A transactional producer of one partition."""

    def __init__(self, playbook: LogPlaybook, producer_id: int, epoch: int = 0) -> None:
        self.playbook = playbook
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, *values: bytes, attributes: int = TRANSACTIONAL) -> int:
        batch = encode_batch(
            [Record(timestamp_ms=START_MS, key=value, value=value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=attributes,
        )
        offset = self.playbook.log.append(batch, now_ms=START_MS).base_offset
        self.sequence += len(values)
        return offset

    def end(self, kind: ControlRecordType, coordinator_epoch: int = 0) -> int:
        return self.playbook.log.append_end_transaction_marker(
            kind,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
            now_ms=START_MS,
        ).base_offset

    def commit(self) -> int:
        return self.end(ControlRecordType.COMMIT)

    def abort(self) -> int:
        return self.end(ControlRecordType.ABORT)


def committed(playbook: LogPlaybook) -> list[bytes | None]:
    """Return the values that a consumer of committed records sees. Like Kafka's, it drops aborted records."""
    log = playbook.log
    offset = log.log_start_offset
    values: list[bytes | None] = []
    while True:
        found = log.read(offset, 1 << 20, committed_only=True)
        if not isinstance(found.records, FileRegion):
            return values
        assert found.aborted_transactions is not None
        offset, more = consume(found.records.read_bytes(), found.aborted_transactions, offset)
        values += more


def consume(data: bytes, aborted: list[tuple[int, int]], offset: int) -> tuple[int, list[bytes | None]]:
    """Return the values that a consumer takes from one read, and the next offset."""
    from klamm.wire.records import decode_end_transaction_marker, decode_records, iterate_batches

    waiting = sorted(aborted, key=lambda each: each[1])
    dropping: set[int] = set()
    values = []
    for header, batch in iterate_batches(data):
        while waiting and waiting[0][1] <= header.last_offset:
            dropping.add(waiting.pop(0)[0])
        if header.is_control:
            marker = decode_end_transaction_marker(batch)
            if marker is not None and marker.type is ControlRecordType.ABORT:
                dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            values += [record.value for record in decode_records(batch) if record.offset >= offset]
        next_offset = header.last_offset + 1
    return next_offset, values


def test_an_open_transaction_holds_the_last_stable_offset(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"before")
    producer = Producer(playbook, 1)
    producer.send(b"a")
    playbook.append(b"after")

    assert (playbook.log.high_watermark, playbook.log.last_stable_offset) == (3, 1)
    assert committed(playbook) == [b"before"]
    producer.commit()
    assert playbook.log.last_stable_offset == 4
    assert committed(playbook) == [b"before", b"a", b"after"]


@pytest.mark.parametrize(("timestamp_type", "attributes"), [("CreateTime", 48), ("LogAppendTime", 56)])
def test_a_marker_has_the_type_of_timestamps_of_the_topic(
    open_log: OpenLog, timestamp_type: str, attributes: int
) -> None:
    playbook = open_log(message_timestamp_type=timestamp_type)
    producer = Producer(playbook, 1)
    producer.send(b"a")
    marker = producer.abort()

    data = playbook.log.read(marker, 1 << 20).records
    assert isinstance(data, FileRegion)
    ((header, batch),) = iterate_batches(data.read_bytes())
    assert (header.attributes, header.max_timestamp_ms) == (attributes, START_MS)
    assert header.crc == batch_checksum(batch)
    assert committed(playbook) == []


def test_a_read_at_the_last_stable_offset_returns_nothing(open_log: OpenLog) -> None:
    playbook = open_log()
    Producer(playbook, 1).send(b"a")

    assert playbook.log.read(0, 1000, committed_only=True) == (1, 0, 0, b"", [])
    assert playbook.log.read(1, 1000, committed_only=True) == (1, 0, 0, b"", [])


def test_aborted_transactions_are_reported(open_log: OpenLog) -> None:
    playbook = open_log()
    first, second = Producer(playbook, 1), Producer(playbook, 2)
    first.send(b"a1")
    second.send(b"b1")
    first.abort()
    first.send(b"a2")
    second.commit()
    first.abort()

    found = playbook.log.read(0, 1 << 20, committed_only=True)

    assert found.aborted_transactions == [(1, 0), (1, 3)]
    assert committed(playbook) == [b"b1"]
    assert playbook.log.read(0, 1 << 20).aborted_transactions is None


def test_aborted_transactions_after_the_read_are_left_out(open_log: OpenLog) -> None:
    playbook = open_log(index_interval_bytes=0)
    producer = Producer(playbook, 1)
    for _ in range(10):
        producer.send(b"x" * 200)
        producer.abort()

    found = playbook.log.read(0, 700, committed_only=True)

    assert found.aborted_transactions == [(1, 0), (1, 2)]


@pytest.mark.parametrize("how", ["reopen", "crash"])
def test_transactions_survive_a_restart(open_log: OpenLog, how: str) -> None:
    playbook = open_log(segment_bytes=400)
    first, second = Producer(playbook, 1), Producer(playbook, 2)
    for number in range(8):
        first.send(b"a%d" % number)
        first.end(ControlRecordType(number % 2))
    second.send(b"open")
    playbook.append(b"plain")
    expected = committed(playbook)
    stable_offset = playbook.log.last_stable_offset

    getattr(playbook, how)()

    assert len(playbook.log.segments) > 3
    assert playbook.log.last_stable_offset == stable_offset == playbook.log.end_offset - 2
    assert committed(playbook) == expected == [b"a1", b"a3", b"a5", b"a7"]
    second.abort()
    assert committed(playbook) == [*expected, b"plain"]


def test_damaged_transaction_index_is_rebuilt_after_a_crash(open_log: OpenLog) -> None:
    playbook = open_log()
    producer = Producer(playbook, 1)
    producer.send(b"a")
    producer.abort()
    playbook.log.close(START_MS)
    path = playbook.directory / "00000000000000000000.txnindex"
    good = path.read_bytes()
    path.write_bytes(b"\x00" * 34)

    playbook.open(is_clean=False)
    playbook.log.close(START_MS)

    assert path.read_bytes() == good


def test_stable_offset_is_never_before_the_start(open_log: OpenLog) -> None:
    playbook = open_log()
    producer = Producer(playbook, 1)
    for value in (b"a", b"b", b"c"):
        producer.send(value)

    playbook.log.delete_records(2)

    assert playbook.log.last_stable_offset == 2
    assert playbook.log.read(2, 1000, committed_only=True) == (3, 2, 2, b"", [])
    assert playbook.reopen().last_stable_offset == 2


def test_stable_offset_moves_with_retention(open_log: OpenLog) -> None:
    playbook = open_log(retention_bytes=0)
    Producer(playbook, 1).send(b"a")

    playbook.log.delete_old_segments(START_MS)

    assert playbook.log.last_stable_offset == playbook.log.log_start_offset == 1


def test_a_record_outside_the_open_transaction_is_refused(open_log: OpenLog) -> None:
    producer = Producer(open_log(), 1)
    producer.send(b"a")

    with pytest.raises(KafkaError) as error:
        producer.send(b"b", attributes=0)
    assert error.value.error_code is ErrorCode.INVALID_TXN_STATE


def test_marker_without_a_transaction_changes_no_offset_but_the_end(open_log: OpenLog) -> None:
    playbook = open_log()
    Producer(playbook, 1).abort()

    assert playbook.log.last_stable_offset == playbook.log.end_offset == 1
    assert ".txnindex" not in "".join(playbook.files())


def test_marker_of_an_old_epoch_is_refused(open_log: OpenLog) -> None:
    playbook = open_log()
    Producer(playbook, 1, epoch=5).send(b"a")

    with pytest.raises(KafkaError) as error:
        Producer(playbook, 1, epoch=4).abort()
    assert error.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_an_old_coordinator_is_refused(open_log: OpenLog) -> None:
    producer = Producer(open_log(), 1)
    producer.send(b"a")
    producer.end(ControlRecordType.COMMIT, coordinator_epoch=3)

    with pytest.raises(KafkaError) as error:
        producer.end(ControlRecordType.COMMIT, coordinator_epoch=2)
    assert error.value.error_code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_may_raise_the_epoch(open_log: OpenLog) -> None:
    playbook = open_log()
    Producer(playbook, 1).send(b"a")
    fencing = Producer(playbook, 1, epoch=1)
    fencing.abort()

    assert committed(playbook) == []
    assert fencing.send(b"b") == 2


def test_idle_producer_in_a_transaction_is_kept(open_log: OpenLog) -> None:
    playbook = open_log()
    Producer(playbook, 1).send(b"a")

    playbook.log.with_producers(lambda producers: producers.remove_expired(START_MS + 10_000, 1000))

    assert [each.current_transaction_first_offset for each in playbook.log.active_producers()] == [0]


def test_control_batch_of_a_client_is_refused(open_log: OpenLog) -> None:
    from klamm.wire.records import encode_end_transaction_marker

    playbook = open_log()
    marker: Any = encode_end_transaction_marker(
        ControlRecordType.COMMIT, timestamp_ms=1, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    with pytest.raises(KafkaError) as error:
        playbook.log.append(marker, now_ms=START_MS)
    assert error.value.error_code is ErrorCode.INVALID_RECORD
