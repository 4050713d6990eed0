"""Tests of idempotent producers in a log: repeats, gaps, epochs, wrapping sequence numbers, and restarts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm import ErrorCode, KafkaError
from klamm.wire.records import Record, encode_batch
from klamm_broker.log.partition_log import AppendResult
from klamm_broker.log.producer_state import CorruptSnapshotError, ProducerStateManager
from tests.unit.log.playbook import START_MS, LogPlaybook

OpenLog = Callable[..., LogPlaybook]
LAST_SEQUENCE = 2**31 - 1


def send(playbook: LogPlaybook, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> AppendResult:
    """Append a producer's batch."""
    batch = encode_batch(
        [Record(timestamp_ms=START_MS, value=b"v")] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return playbook.log.append(batch, now_ms=START_MS)


def refused(playbook: LogPlaybook, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    """Return the error for a producer's batch."""
    end_offset = playbook.log.end_offset
    with pytest.raises(KafkaError) as error:
        send(playbook, sequence, count, epoch=epoch)
    assert playbook.log.end_offset == end_offset
    return error.value.error_code


def test_a_repeated_batch_gets_the_offset_of_the_first(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0, 3)
    send(playbook, 3, 2)

    assert send(playbook, 0, 3) == (0, 2, START_MS, 0, True, False)
    assert send(playbook, 3, 2) == (3, 4, START_MS, 0, True, False)
    assert playbook.log.end_offset == 5


def test_five_batches_are_remembered(open_log: OpenLog) -> None:
    playbook = open_log()
    for sequence in range(6):
        send(playbook, sequence)

    assert send(playbook, 1).duplicate
    assert refused(playbook, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_producer_without_an_epoch_continues_anywhere(open_log: OpenLog, epoch: int) -> None:
    playbook = open_log()
    send(playbook, 0, epoch=-1)
    assert send(playbook, 5, epoch=epoch).base_offset == 1
    assert send(playbook, 5, epoch=epoch).duplicate
    send(playbook, 6, epoch=0)
    assert refused(playbook, 9, epoch=0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(1, 1), (3, 1), (0, 1), (1, 2)])
def test_only_the_next_sequence_number_is_accepted(open_log: OpenLog, sequence: int, count: int) -> None:
    playbook = open_log()
    send(playbook, 0, 2)

    assert refused(playbook, sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(playbook, 2).base_offset == 2


def test_an_unknown_producer_may_start_with_any_sequence_number(open_log: OpenLog) -> None:
    assert send(open_log(), 42).base_offset == 0


def test_producers_are_independent(open_log: OpenLog) -> None:
    playbook = open_log()

    assert not send(playbook, 0, producer=1).duplicate
    assert not send(playbook, 0, producer=2).duplicate


def test_a_new_epoch_starts_with_sequence_number_0(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0)

    assert refused(playbook, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(playbook, 0, epoch=1).duplicate
    assert refused(playbook, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequence_numbers_wrap_around(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, LAST_SEQUENCE - 1, 4)

    assert send(playbook, LAST_SEQUENCE - 1, 4).duplicate
    assert not send(playbook, 2).duplicate
    assert playbook.log.active_producers()[0].last_sequence == 2


def test_sequence_number_0_follows_the_largest(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, LAST_SEQUENCE)

    assert refused(playbook, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(playbook, 0).duplicate


@pytest.mark.parametrize("how", ["reopen", "crash"])
def test_producers_survive_a_restart(open_log: OpenLog, how: str) -> None:
    playbook = open_log(segment_bytes=300)
    for sequence in range(10):
        send(playbook, sequence)

    getattr(playbook, how)()

    assert send(playbook, 9) == (9, 9, START_MS, 0, True, False)
    assert refused(playbook, 11) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(playbook, 10).base_offset == 10


def test_a_clean_restart_reads_only_the_snapshot(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0, 3)
    playbook.reopen()

    assert "00000000000000000003.snapshot" in playbook.files()
    assert playbook.log.active_producers()[0].last_sequence == 2


def test_snapshot_remembers_a_batch_at_offset_zero(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0)
    playbook.reopen()
    assert send(playbook, 0).duplicate


def test_a_repeated_batch_causes_no_early_flush(open_log: OpenLog) -> None:
    playbook = open_log(flush_messages=2)
    send(playbook, 0)
    assert send(playbook, 0).duplicate
    assert playbook.log.recovery_point == 0


def test_damaged_snapshot_is_replaced_by_a_replay(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0, 3)
    playbook.log.close(START_MS)
    path = playbook.directory / "00000000000000000003.snapshot"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")

    playbook.open(is_clean=True)

    assert send(playbook, 0, 3).duplicate
    assert "00000000000000000003.snapshot" not in playbook.files()


def test_truncation_restores_the_earlier_state_of_producers(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=150)
    for sequence in range(6):
        send(playbook, sequence)

    playbook.log.truncate_to(3)

    assert send(playbook, 2).duplicate
    assert send(playbook, 3).base_offset == 3


def test_idle_producers_expire(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0)

    playbook.log.with_producers(lambda producers: producers.remove_expired(START_MS + 999, 1000))
    assert len(playbook.log.active_producers()) == 1
    playbook.log.with_producers(lambda producers: producers.remove_expired(START_MS + 1000, 1000))
    assert not playbook.log.active_producers()


def test_a_repeated_batch_is_recognized_after_a_failed_write(open_log: OpenLog) -> None:
    playbook = open_log()
    send(playbook, 0)
    playbook.disk.free_bytes = 10
    assert refused(playbook, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    playbook.disk.free_bytes = None

    assert send(playbook, 1) == (1, 1, -1, 0, False, False)


def test_snapshot_may_have_no_producers() -> None:
    producers = ProducerStateManager()
    producers.load(ProducerStateManager().snapshot())

    assert producers.entries == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:5],
        lambda data: b"\x00\x02" + data[2:],
        lambda data: data[:-1],
        lambda data: data + b"\x00",
        lambda data: data[:20] + b"\xff" + data[21:],
    ],
)
def test_damaged_snapshots_are_refused(open_log: OpenLog, damage: Callable[[bytes], bytes]) -> None:
    playbook = open_log()
    send(playbook, 0)
    playbook.log.roll(START_MS)
    data = (playbook.directory / "00000000000000000001.snapshot").read_bytes()

    with pytest.raises(CorruptSnapshotError):
        ProducerStateManager().load(damage(data))


@pytest.mark.parametrize("producer_id", [-2, -(2**63)])
def test_ids_below_minus_one_are_no_producers(open_log: OpenLog, producer_id: int) -> None:
    playbook = open_log()
    for _ in range(2):
        playbook.append(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert playbook.log.end_offset == 2
    assert playbook.log.active_producers() == []
    playbook.crash()
    assert playbook.log.active_producers() == []


def test_highest_producer_id_is_known(open_log: OpenLog) -> None:
    playbook = open_log()
    assert playbook.log.with_producers(lambda producers: producers.highest_id) == -1
    for producer_id in (5, 7, 2**63 - 1):
        playbook.append(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert playbook.log.with_producers(lambda producers: producers.highest_id) == 7
