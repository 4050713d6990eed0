"""Tests of offsets by timestamp, exact to the record, and of the largest timestamp."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klamm.wire.compression import Codec
from klamm.wire.records import Record, encode_batch
from tests.unit.log.playbook import START_MS, LogPlaybook

OpenLog = Callable[..., LogPlaybook]


def append_at(playbook: LogPlaybook, *timestamps_ms: int, codec: Codec = Codec.NONE) -> None:
    """Append one batch with these timestamps, relative to the start."""
    records = [Record(timestamp_ms=START_MS + each, value=b"v" * 30) for each in timestamps_ms]
    playbook.log.append(encode_batch(records, codec=codec), now_ms=START_MS)


@pytest.mark.parametrize("index_interval_bytes", [0, 4096])
@pytest.mark.parametrize("reopened", [False, True])
def test_the_first_record_at_or_after_a_timestamp_is_found(
    open_log: OpenLog, index_interval_bytes: int, reopened: bool
) -> None:
    playbook = open_log(segment_bytes=400, index_interval_bytes=index_interval_bytes)
    timestamps_ms = [5, 3, 8, 8, 2, 20, 15, 30, 25, 40, 41, 42]
    for first, second in zip(timestamps_ms[::2], timestamps_ms[1::2], strict=True):
        append_at(playbook, first, second, codec=Codec.GZIP)
    if reopened:
        playbook.reopen()

    for wanted in range(45):
        found = playbook.log.offset_for_timestamp(START_MS + wanted)
        expected = next(
            ((START_MS + each, offset, 0) for offset, each in enumerate(timestamps_ms) if each >= wanted), None
        )
        assert found == expected, wanted
    assert playbook.log.max_timestamp() == (START_MS + 42, 11, 0)


def test_records_before_the_start_of_the_log_are_not_found(open_log: OpenLog) -> None:
    playbook = open_log()
    append_at(playbook, 1, 2, 3)
    append_at(playbook, 4)
    playbook.log.delete_records(2)

    assert playbook.log.offset_for_timestamp(0) == (START_MS + 3, 2, 0)


def test_largest_timestamp_is_reported_once(open_log: OpenLog) -> None:
    playbook = open_log()
    append_at(playbook, 1, 9, 9)
    append_at(playbook, 9)
    append_at(playbook, 3)

    assert playbook.log.max_timestamp() == (START_MS + 9, 1, 0)


def test_the_largest_timestamp_before_the_start_is_not_found(open_log: OpenLog) -> None:
    playbook = open_log()
    append_at(playbook, 1, 9, 2)
    append_at(playbook, 4)
    playbook.log.delete_records(3)

    assert playbook.log.max_timestamp() == (START_MS + 9, 1, 0)


def test_largest_timestamp_in_an_old_segment_is_found(open_log: OpenLog) -> None:
    playbook = open_log()
    append_at(playbook, 9)
    playbook.log.roll(START_MS)
    append_at(playbook, 3)

    assert playbook.log.max_timestamp() == (START_MS + 9, 0, 0)
    assert playbook.reopen().max_timestamp() == (START_MS + 9, 0, 0)


def test_an_empty_log_has_no_timestamps(open_log: OpenLog) -> None:
    log = open_log().log

    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


def test_records_without_timestamps_are_not_found_by_time(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.log.append(encode_batch([Record(value=b"v")]), now_ms=START_MS)

    assert playbook.log.max_timestamp() == (-1, 0, 0)
    assert playbook.reopen().max_timestamp() == (-1, 0, 0)
    assert playbook.log.offset_for_timestamp(0) is None


def test_truncation_restores_the_earlier_largest_timestamp(open_log: OpenLog) -> None:
    playbook = open_log(index_interval_bytes=0)
    for each in (1, 5, 3, 9):
        append_at(playbook, each)
    playbook.log.truncate_to(3)

    assert playbook.log.max_timestamp() == (START_MS + 5, 1, 0)
    append_at(playbook, 2)
    assert playbook.reopen().max_timestamp() == (START_MS + 5, 1, 0)
