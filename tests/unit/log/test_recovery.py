"""Tests of opening a log after a stop, a kill, an incomplete write, and with missing or extra files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm import KafkaError
from klamm.wire.records import ControlRecordType
from klamm_broker.log.segment import SEGMENT_SUFFIXES
from tests.unit.log.playbook import START_MS, LogPlaybook, produced

OpenLog = Callable[..., LogPlaybook]


def indexes(directory: Path) -> dict[str, bytes]:
    """Return the content of all indexes."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".index", ".timeindex")}


def fill(playbook: LogPlaybook, count: int = 20) -> list[bytes | None]:
    """Append batches with increasing timestamps."""
    for number in range(count):
        playbook.clock.advance_ms(7)
        playbook.append(b"%d" % number * 10)
    return playbook.values()


@pytest.mark.parametrize("how", ["reopen", "crash"])
def test_a_reopened_log_has_all_records(open_log: OpenLog, how: str) -> None:
    playbook = open_log(segment_bytes=500, index_interval_bytes=100)
    values = fill(playbook)

    getattr(playbook, how)()

    assert len(playbook.log.segments) > 3
    assert playbook.values() == values
    assert playbook.append(b"next") == 20
    assert playbook.log.max_timestamp() == (playbook.clock.wall_ms(), 19, 0)


def test_recovery_makes_the_same_indexes(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=500, index_interval_bytes=100)
    fill(playbook)
    playbook.log.close(START_MS)
    expected = indexes(playbook.directory)
    for name in expected:
        (playbook.directory / name).write_bytes(b"\xff" * 7)

    playbook.open(is_clean=False)
    playbook.log.close(START_MS)

    assert indexes(playbook.directory) == expected
    assert any(expected.values())


def test_recovery_starts_at_the_recovery_point(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=500, index_interval_bytes=100)
    fill(playbook)
    second = playbook.log.segments[1].base_offset
    playbook.log.close(START_MS)
    first_index = playbook.directory / "00000000000000000000.index"
    first_index.write_bytes(b"\x00" * 8)
    second_index = playbook.directory / f"{second:020d}.index"
    second_index.write_bytes(b"\x00" * 8)

    playbook.open(is_clean=False, recovery_point=second)

    assert first_index.read_bytes() == b"\x00" * 8
    assert second_index.read_bytes() != b"\x00" * 8


def test_missing_indexes_are_rebuilt_even_after_a_clean_stop(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=500, index_interval_bytes=100)
    values = fill(playbook)
    playbook.log.close(START_MS)
    expected = indexes(playbook.directory)
    for name in list(expected)[1:4]:
        (playbook.directory / name).unlink()

    playbook.open(is_clean=True)

    assert playbook.values() == values
    playbook.log.close(START_MS)
    assert indexes(playbook.directory) == expected


def test_a_last_batch_that_is_cut_at_any_byte_is_removed(open_log: OpenLog, tmp_path: Path) -> None:
    playbook = open_log()
    playbook.append(b"first")
    playbook.append(b"second")
    path = playbook.directory / "00000000000000000000.log"
    sound_bytes = path.stat().st_size
    playbook.append(b"third")
    whole = path.read_bytes()
    for size_bytes in range(sound_bytes, len(whole)):
        path.write_bytes(whole[:size_bytes])

        playbook.crash()

        assert playbook.values() == [b"first", b"second"]
        assert path.stat().st_size == sound_bytes
    assert playbook.append(b"again") == 2


def test_a_last_batch_with_any_changed_byte_is_removed(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"first")
    path = playbook.directory / "00000000000000000000.log"
    start = path.stat().st_size
    playbook.append(b"second")
    whole = path.read_bytes()
    # Bytes 12 to 15, the leader epoch, may have any value, because no checksum covers them.
    for position in [*range(start, start + 12), *range(start + 16, len(whole))]:
        damaged = bytearray(whole)
        damaged[position] ^= 0x80
        path.write_bytes(damaged)

        playbook.crash()

        assert [record.value for record in playbook.records()] in ([b"first"], [b"first", b"second"])
        if position >= start + 16:
            assert playbook.log.end_offset == 1


def test_segments_after_an_invalid_one_are_set_aside(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200)
    fill(playbook, 8)
    assert [segment.base_offset for segment in playbook.log.segments] == [0, 2, 4, 6]
    path = playbook.directory / "00000000000000000002.log"
    path.write_bytes(path.read_bytes()[:-1])

    playbook.crash()

    assert playbook.values() == [b"0" * 10, b"1" * 10, b"2" * 10]
    assert {name for name in playbook.files() if name.endswith(".log")} == {f"{base:020d}.log" for base in (0, 2)}
    assert not any(int(name[:20]) > 3 for name in playbook.files() if name.endswith(".snapshot"))


def test_extra_files_are_removed(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook, 3)
    playbook.log.close(START_MS)
    for name in ("5.log.deleted", "0.log.cleaned", "9.index", "9.txnindex", "7.snapshot.tmp"):
        number, kind = name.split(".", 1)
        (playbook.directory / f"{int(number):020d}.{kind}").write_bytes(b"junk")
    (playbook.directory / "of a user.txt").write_bytes(b"stays")

    playbook.open(is_clean=True)

    assert playbook.files() == {
        "of a user.txt",
        "leader-epoch-checkpoint",
        "00000000000000000003.snapshot",
        *("0" * 20 + suffix for suffix in SEGMENT_SUFFIXES if suffix != ".txnindex"),
    }


def test_a_log_that_ends_before_its_start_offset_is_emptied(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook, 3)
    playbook.log.close(START_MS)

    playbook.open(is_clean=False, log_start_offset=10)

    assert (playbook.log.log_start_offset, playbook.log.end_offset) == (10, 10)
    assert playbook.append(b"x") == 10


def test_empty_directory_starts_at_the_given_offset(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.log.close(START_MS)
    (playbook.directory / "00000000000000000000.log").unlink()

    playbook.open(is_clean=False, log_start_offset=5)

    assert playbook.append(b"x") == 5


def test_log_killed_right_after_a_roll_recovers(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook, 3)
    playbook.log.roll(START_MS)

    playbook.crash()

    assert playbook.log.end_offset == 3
    assert len(playbook.log.segments) == 2
    assert playbook.append(b"x") == 3


@pytest.mark.parametrize("interval_bytes", [1, 4096])
def test_a_log_that_was_cut_after_a_clean_stop_ends_with_its_last_whole_batch(
    open_log: OpenLog, interval_bytes: int
) -> None:
    playbook = open_log(index_interval_bytes=interval_bytes)
    values = fill(playbook, 3)
    path = playbook.directory / "00000000000000000000.log"
    sound_bytes = path.stat().st_size
    playbook.append(b"fourth")
    fourth_ends = path.stat().st_size
    playbook.log.append_end_transaction_marker(
        ControlRecordType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, now_ms=START_MS
    )
    playbook.log.close(START_MS)
    whole = path.read_bytes()
    for size_bytes in range(sound_bytes, len(whole)):
        path.write_bytes(whole[:size_bytes])

        playbook.open(is_clean=True)

        expected = [*values, b"fourth"] if size_bytes >= fourth_ends else values
        assert playbook.values() == expected, size_bytes
        playbook.log.close(START_MS)


@pytest.mark.parametrize("length", [-(2**31), -100, -13, -12, -11, 0, 1, 48, 2**31 - 1])
def test_bytes_behind_the_last_batch_after_a_clean_stop_are_cut_off(open_log: OpenLog, length: int) -> None:
    playbook = open_log()
    values = fill(playbook, 3)
    playbook.log.close(START_MS)
    path = playbook.directory / "00000000000000000000.log"
    sound = path.read_bytes()
    # 48 is less than any batch has.
    header = struct.pack(">qiib", 3, length, 0, 2 if length == 48 else 0)
    path.write_bytes(sound + header + bytes(1_000))
    playbook.open(is_clean=True)
    assert playbook.values() == values
    assert path.read_bytes() == sound


def test_damaged_leader_epochs_are_done_without(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook, 3)
    playbook.log.close(START_MS)
    (playbook.directory / "leader-epoch-checkpoint").write_text("what?\n")

    playbook.open(is_clean=True)

    assert playbook.append(b"x") == 3
    assert playbook.log.end_offset_for_epoch(0) == (0, 4)


def test_a_leader_epoch_without_a_record_is_removed_after_a_crash(open_log: OpenLog) -> None:
    playbook = open_log()
    fill(playbook, 3)
    playbook.disk.free_bytes = 60
    with pytest.raises(Exception, match="no space"):
        playbook.log.append(produced(b"x" * 100), now_ms=START_MS, leader_epoch=4)
    playbook.disk.free_bytes = None

    playbook.crash()

    assert playbook.log.end_offset_for_epoch(4) is None
    assert playbook.log.end_offset_for_epoch(0) == (0, 3)


def test_the_cut_of_a_recovery_is_durable(open_log: OpenLog) -> None:
    """Records before the cut may be synced, and then a clean shutdown syncs nothing."""
    playbook = open_log()
    playbook.append(b"synced")
    playbook.log.flush(START_MS)
    path = playbook.directory / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(b"torn")
    playbook.disk.synced.clear()
    playbook.crash(recovery_point=1)
    assert playbook.disk.synced[:1] == [str(path)]
    assert str(playbook.directory) in playbook.disk.synced


def test_segments_that_recovery_sets_aside_do_not_return(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=100)
    for value in (b"a", b"b", b"c"):
        playbook.append(value * 20)
    playbook.log.flush(START_MS)
    path = playbook.directory / "00000000000000000001.log"
    path.write_bytes(b"?" + path.read_bytes()[1:])
    playbook.disk.synced.clear()
    playbook.crash()
    assert playbook.log.end_offset == 1
    assert str(playbook.directory) in playbook.disk.synced


@pytest.mark.parametrize("rolls", [False, True])
def test_a_failed_write_that_was_removed_does_not_return(open_log: OpenLog, rolls: bool) -> None:
    playbook = open_log()
    playbook.append(b"synced")
    playbook.log.flush(START_MS)
    path = playbook.directory / "00000000000000000000.log"
    playbook.disk.free_bytes = 7
    with pytest.raises(KafkaError):
        playbook.append(b"refused")
    playbook.disk.free_bytes = None
    playbook.disk.synced.clear()
    if rolls:
        playbook.log.roll(START_MS)
        assert playbook.disk.synced[:1] == [str(path)], "before another segment is the one that recovery checks"
    else:
        playbook.reopen()
        assert str(path) in playbook.disk.synced


def old_message(magic: int, offset: int) -> bytes:
    """Return a message of magic 0 or 1, as Apache Kafka wrote them before 0.11."""
    timestamp = struct.pack(">q", START_MS) if magic else b""
    body = bytes([magic, 0]) + timestamp + struct.pack(">i", -1) + struct.pack(">i", 40) + b"v" * 40
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("sound", [0, 2])
def test_a_log_ends_at_the_first_message_of_an_old_format_and_keeps_the_rest_aside(
    open_log: OpenLog, magic: int, sound: int
) -> None:
    playbook = open_log()
    for number in range(sound):
        playbook.append(b"%d" % number)
    path = playbook.directory / "00000000000000000000.log"
    start = path.stat().st_size
    old = b"".join(old_message(magic, sound + number) for number in range(3))
    path.write_bytes(path.read_bytes() + old)

    playbook.crash()

    assert playbook.values() == [b"%d" % number for number in range(sound)]
    assert path.stat().st_size == start
    (aside,) = [each for each in playbook.directory.iterdir() if "set-aside" in each.name]
    assert aside.read_bytes() == old
    assert playbook.append(b"next") == sound
