"""Tests of segments that are removed by age, size, DeleteRecords, or truncation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm import ErrorCode, KafkaError
from tests.unit.log.playbook import START_MS, LogPlaybook, produced
from tests.waiting import open_below

OpenLog = Callable[..., LogPlaybook]
BATCH_BYTES = len(produced(b"0"))


def bases(playbook: LogPlaybook) -> list[int]:
    """Return the base offsets of the segments."""
    return [segment.base_offset for segment in playbook.log.segments]


def fill(playbook: LogPlaybook, count: int = 6) -> None:
    """Append one batch of one record per segment, a second apart."""
    for number in range(count):
        playbook.append(b"%d" % number)
        playbook.clock.advance_ms(1000)


def test_old_segments_are_deleted(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_ms=3000)
    fill(playbook)

    assert playbook.log.delete_old_segments(playbook.clock.wall_ms()) == 3
    assert bases(playbook) == [3, 4, 5]
    assert playbook.log.log_start_offset == 3
    assert playbook.values() == [b"3", b"4", b"5"]
    with pytest.raises(KafkaError) as error:
        playbook.log.read(2, 100)
    assert error.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_offsets_continue_when_all_segments_are_deleted(open_log: OpenLog) -> None:
    playbook = open_log(retention_ms=3000)
    fill(playbook)

    playbook.log.delete_old_segments(START_MS + 10_000)

    assert (playbook.log.log_start_offset, playbook.log.end_offset) == (6, 6)
    assert playbook.values() == []
    assert playbook.crash().end_offset == 6
    assert playbook.append(b"x") == 6


def test_an_empty_log_keeps_its_segment(open_log: OpenLog) -> None:
    playbook = open_log(retention_ms=0, retention_bytes=0)

    assert playbook.log.delete_old_segments(START_MS) == 0
    assert bases(playbook) == [0]


def test_the_age_of_segments_without_timestamps_is_that_of_their_files(open_log: OpenLog) -> None:
    playbook = open_log(retention_ms=1000)
    playbook.log.append(produced(b"a", timestamp_ms=-1), now_ms=START_MS)
    modified_ms = playbook.log.segments[0].file.modified_ms()

    assert playbook.log.delete_old_segments(modified_ms + 1000) == 0
    assert playbook.log.delete_old_segments(modified_ms + 1001) == 1


def test_retention_of_minus_one_deletes_nothing(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_ms=-1, retention_bytes=-1)
    fill(playbook)

    assert playbook.log.delete_old_segments(START_MS + 10**12) == 0


@pytest.mark.parametrize(("batches", "kept"), [(6, 6), (5, 5), (3, 3), (2, 2)])
def test_segments_above_the_size_are_deleted(open_log: OpenLog, batches: int, kept: int) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_bytes=batches * BATCH_BYTES)
    fill(playbook)

    playbook.log.delete_old_segments(START_MS)

    assert len(playbook.values()) == kept


def test_retention_keeps_at_least_the_configured_size(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_bytes=3 * BATCH_BYTES - 1)
    fill(playbook)

    playbook.log.delete_old_segments(START_MS)

    assert len(playbook.values()) == 3


def test_retention_deletes_nothing_of_a_compacted_topic(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_ms=0, retention_bytes=0, cleanup_policy="compact")
    fill(playbook)

    assert playbook.log.delete_old_segments(START_MS + 10**9) == 0


def test_files_are_deleted_after_the_delay(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_ms=3000, file_delete_delay_ms=500)
    fill(playbook)
    now_ms = playbook.clock.wall_ms()
    playbook.log.delete_old_segments(now_ms)
    assert "00000000000000000000.log.deleted" in playbook.files()

    playbook.context.deletions.run_due(now_ms + 499)
    assert "00000000000000000000.log.deleted" in playbook.files()
    playbook.context.deletions.run_due(now_ms + 500)

    assert not [name for name in playbook.files() if name.endswith(".deleted")]
    assert not [name for name in playbook.files() if name.startswith("00000000000000000002.")]


def test_records_are_deleted_up_to_an_offset(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=3 * BATCH_BYTES)
    fill(playbook)
    playbook.log.delete_records(4)

    assert playbook.log.log_start_offset == 4
    assert playbook.values() == [b"4", b"5"]
    assert playbook.log.delete_old_segments(START_MS) == 1
    assert bases(playbook) == [3]
    assert playbook.reopen().log_start_offset == 4


def test_delete_records_moves_only_forward(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook)
    playbook.log.delete_records(4)
    playbook.log.delete_records(2)

    assert playbook.log.log_start_offset == 4


def test_delete_records_beyond_the_end_is_refused(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook)

    with pytest.raises(KafkaError) as error:
        playbook.log.delete_records(7)
    assert error.value.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_moves_epochs(open_log: OpenLog) -> None:
    playbook = open_log()
    for epoch in (0, 0, 2, 5):
        playbook.log.append(produced(b"x"), now_ms=START_MS, leader_epoch=epoch)
    playbook.log.delete_records(1)
    assert playbook.log.leader_epochs.entries == ((0, 1), (2, 2), (5, 3))

    playbook.log.delete_records(3)

    assert playbook.reopen().leader_epochs.entries == ((5, 3),)


def test_the_end_offset_of_an_epoch_is_found(open_log: OpenLog) -> None:
    log = open_log().log
    assert log.end_offset_for_epoch(0) is None
    for epoch in (0, 0, 2, 5):
        log.append(produced(b"x"), now_ms=START_MS, leader_epoch=epoch)

    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2, 4, 5, 6)] == [
        (0, 2),
        (0, 2),
        (2, 3),
        (2, 3),
        (5, 4),
        None,
    ]
    assert log.end_offset_for_epoch(-1) is None
    log.delete_records(3)
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 4, 5)] == [(0, 3), (4, 3), (5, 4)]


@pytest.mark.parametrize("offset", range(7))
def test_truncation_removes_later_records_and_appends_continue(open_log: OpenLog, offset: int) -> None:
    playbook = open_log(segment_bytes=2 * BATCH_BYTES, index_interval_bytes=0)
    fill(playbook)

    playbook.log.truncate_to(offset)

    assert playbook.log.end_offset == offset
    assert playbook.values() == [b"%d" % number for number in range(offset)]
    assert playbook.append(b"new") == offset
    expected = playbook.values()
    playbook.reopen()
    assert playbook.values() == expected
    playbook.crash()
    assert playbook.values() == expected


def test_truncation_removes_whole_batches(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a")
    playbook.append(b"b", b"c", b"d")
    playbook.log.truncate_to(2)

    assert playbook.log.end_offset == 1
    assert playbook.values() == [b"a"]


def test_truncation_before_the_first_segment_empties_the_log(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, retention_bytes=0)
    fill(playbook)
    playbook.log.delete_old_segments(START_MS)

    playbook.log.truncate_to(2)

    assert (playbook.log.log_start_offset, playbook.log.end_offset) == (2, 2)
    assert playbook.append(b"x") == 2


def test_no_file_stays_open_after_a_late_reader_of_a_removed_segment(open_log: OpenLog, tmp_path: Path) -> None:
    playbook = open_log(segment_bytes=200, retention_bytes=200)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    dropped = playbook.log.segments[0]
    playbook.log.delete_old_segments(playbook.clock.wall_ms())
    open_before = open_below(tmp_path)
    region = dropped.file.region(0, 10)
    assert len(region.read_bytes()) == 10
    region.close()
    assert dropped.file.read(0, 10)
    assert open_below(tmp_path) <= open_before
    assert dropped.file not in playbook.open_files._files


def test_the_file_closes_with_its_last_reader_from_before_the_deletion(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200, retention_bytes=200)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    dropped = playbook.log.segments[0]
    content = dropped.file.path.read_bytes()
    region = dropped.file.region(0, len(content))
    playbook.log.delete_old_segments(playbook.clock.wall_ms())
    assert dropped not in playbook.log.segments

    def holders() -> list[str]:
        links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        targets = [os.readlink(link) for link in links if os.path.lexists(link)]
        base = f"{dropped.base_offset:020d}."
        return [each for each in targets if str(playbook.directory) in each and base in each]

    assert len(holders()) == 1
    assert region.read_bytes() == content
    region.close()
    assert holders() == []
    assert dropped.file not in playbook.open_files._files
