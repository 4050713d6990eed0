"""Tests of a full or broken disk: producers get errors, no part of a batch is visible, and the log recovers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm import ErrorCode, KafkaError
from tests.unit.log.playbook import START_MS, FailingDisk, LogPlaybook, produced

OpenLog = Callable[..., LogPlaybook]
BATCH_BYTES = len(produced(b"x" * 50))


def refused(playbook: LogPlaybook) -> None:
    """Append a batch whose write fails because of the disk."""
    with pytest.raises(KafkaError) as error:
        playbook.append(b"x" * 50)
    assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("free_bytes", [0, 1, 61, BATCH_BYTES - 1])
def test_full_disk_refuses_batches_and_keeps_the_log(open_log: OpenLog, free_bytes: int) -> None:
    playbook = open_log()
    playbook.append(b"before")
    path = playbook.directory / "00000000000000000000.log"
    size_bytes = path.stat().st_size

    playbook.disk.free_bytes = free_bytes
    refused(playbook)
    assert path.stat().st_size == size_bytes
    assert playbook.values() == [b"before"]

    playbook.disk.free_bytes = None
    assert playbook.append(b"after") == 1
    assert playbook.crash().end_offset == 2
    assert playbook.values() == [b"before", b"after"]


def test_short_writes_are_continued(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = open_log()
    whole = playbook.disk.pwrite
    monkeypatch.setattr(
        type(playbook.disk), "pwrite", lambda _disk, fd, data, position: whole(fd, memoryview(data)[:7], position)
    )

    playbook.append(b"x" * 50, b"y" * 50)

    assert playbook.values() == [b"x" * 50, b"y" * 50]


def test_tail_that_cannot_be_cut_at_once_is_cut_before_the_next_write(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"before")
    playbook.disk.free_bytes = 100
    playbook.disk.failing = {"ftruncate"}
    refused(playbook)
    refused(playbook)

    playbook.disk.free_bytes = None
    playbook.disk.failing = set()
    playbook.append(b"y")

    playbook.disk.failing = {"ftruncate"}  # No bytes are left to cut.
    playbook.append(b"z")

    assert playbook.values() == [b"before", b"y", b"z"]
    assert playbook.crash().end_offset == 3
    assert (playbook.directory / "00000000000000000000.log").stat().st_size == playbook.log.size_bytes


def test_full_disk_at_a_roll_keeps_the_log(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES, index_interval_bytes=0)
    playbook.append(b"x" * 50)
    for free_bytes in (0, 5, 13):
        playbook.disk.free_bytes = free_bytes
        refused(playbook)

    playbook.disk.free_bytes = None
    assert playbook.append(b"x" * 50) == 1
    assert playbook.values() == [b"x" * 50] * 2
    playbook.reopen()
    assert playbook.values() == [b"x" * 50] * 2


def test_batch_refused_by_a_full_disk_starts_no_leader_epoch(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.disk.free_bytes = 3
    with pytest.raises(KafkaError):
        playbook.append(b"x" * 50)

    playbook.disk.free_bytes = None
    playbook.append(b"x" * 50)
    playbook.reopen()

    assert playbook.log.end_offset_for_epoch(0) == (0, 1)


def test_failed_sync_ends_appending(open_log: OpenLog) -> None:
    playbook = open_log(flush_messages=1)
    playbook.append(b"synced")
    playbook.disk.failing = {"fsync"}
    refused(playbook)
    playbook.disk.failing = set()

    refused(playbook)
    assert playbook.values() == [b"synced", b"x" * 50]
    assert playbook.log.recovery_point == 1

    playbook.crash()
    assert playbook.append(b"again") == 2


class NoDescriptors:
    """A platform on which no file can be opened while `lasts` is true."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lasts = True
        self._open = FailingDisk.open
        monkeypatch.setattr(FailingDisk, "open", lambda disk, path, flags: self._or_fail(disk, path, flags))

    def _or_fail(self, disk: FailingDisk, path: Path, flags: int) -> int:
        if self.lasts:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._open(disk, path, flags)


@pytest.mark.parametrize("is_cut", [False, True])
def test_without_a_free_descriptor_the_sync_waits_and_the_log_continues(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    playbook = open_log(flush_messages=1)
    playbook.append(b"synced")
    if is_cut:
        playbook.disk.free_bytes = 5
        refused(playbook)
        playbook.disk.free_bytes = None
    batch = bytes(produced(b"waits", producer_id=7, producer_epoch=0, base_sequence=0))
    playbook.disk.synced.clear()
    none = NoDescriptors(monkeypatch)
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            playbook.log.append(batch, now_ms=START_MS)
        assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (playbook.log.recovery_point, playbook.log.is_writable) == (1, True)
    none.lasts = False

    assert playbook.log.append(batch, now_ms=START_MS).duplicate
    assert playbook.log.recovery_point == playbook.log.end_offset == 2
    assert str(playbook.directory) in playbook.disk.synced
    assert any(name.endswith(".log") for name in playbook.disk.synced)


def test_an_index_that_cannot_be_read_leaves_nothing_of_a_batch(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    playbook = open_log()
    playbook.append(b"before")
    playbook.reopen()
    path = playbook.directory / "00000000000000000000.log"
    size_bytes, read = path.stat().st_size, Path.read_bytes

    def read_bytes(file: Path) -> bytes:
        if file.suffix == ".timeindex":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(file)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        refused(playbook)
    assert path.stat().st_size == size_bytes

    playbook.append(b"y")
    playbook.reopen()
    assert playbook.values() == [b"before", b"y"]


def test_flush_messages_syncs_the_log_and_its_indexes(open_log: OpenLog) -> None:
    playbook = open_log(flush_messages=3)
    playbook.append(b"a", b"b")
    assert playbook.disk.synced == []
    playbook.append(b"c")

    assert {name.rsplit(".", 1)[-1] for name in playbook.disk.synced} >= {"log", "index", "timeindex"}
    assert str(playbook.directory) in playbook.disk.synced
    assert playbook.log.recovery_point == 3


def test_log_is_flushed_after_flush_ms(open_log: OpenLog) -> None:
    playbook = open_log(flush_ms=1000)
    playbook.log.flush_due(START_MS)
    playbook.append(b"a")
    playbook.log.flush_due(START_MS + 999)
    assert playbook.log.recovery_point == 0

    playbook.log.flush_due(START_MS + 1000)

    assert playbook.log.recovery_point == 1


def test_rolled_segments_are_synced_in_the_background(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES)
    for _ in range(3):
        playbook.append(b"x" * 50)
    assert playbook.disk.synced == []

    playbook.log.flush_due(START_MS)

    logs = [name.rsplit("/", 1)[-1] for name in playbook.disk.synced if name.endswith(".log")]
    assert logs == ["00000000000000000000.log", "00000000000000000001.log"]
    assert playbook.log.recovery_point == 2


def test_full_disk_at_close_is_an_unclean_end(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"a")
    playbook.disk.free_bytes = 0

    with pytest.raises(KafkaError):
        playbook.log.close(START_MS)

    playbook.disk.free_bytes = None
    assert playbook.crash().end_offset == 1


def test_a_closed_log_refuses_appends(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.log.close(START_MS)

    refused(playbook)


def test_a_missing_file_is_reported(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=BATCH_BYTES)
    playbook.append(b"x" * 50)
    playbook.append(b"x" * 50)
    playbook.log.close_files()
    (playbook.directory / "00000000000000000000.log").unlink()

    with pytest.raises(KafkaError) as error:
        playbook.log.read(0, 1000)
    assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert playbook.log.read(1, 1000).records
