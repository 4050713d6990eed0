"""A disk that is full or broken: the producer gets an error, no part of a batch is visible, and the log works again."""

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


def refused(book: LogPlaybook) -> None:
    """An append fails as the disk does."""
    with pytest.raises(KafkaError) as error:
        book.append(b"x" * 50)
    assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("free_bytes", [0, 1, 61, BATCH_BYTES - 1])
def test_full_disk(open_log: OpenLog, free_bytes: int) -> None:
    book = open_log()
    book.append(b"before")
    path = book.directory / "00000000000000000000.log"
    size_bytes = path.stat().st_size

    book.disk.free_bytes = free_bytes
    refused(book)
    assert path.stat().st_size == size_bytes
    assert book.values() == [b"before"]

    book.disk.free_bytes = None
    assert book.append(b"after") == 1
    assert book.crash().end_offset == 2
    assert book.values() == [b"before", b"after"]


def test_short_writes_that_go_on(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    book = open_log()
    whole = book.disk.pwrite
    monkeypatch.setattr(
        type(book.disk), "pwrite", lambda _disk, fd, data, position: whole(fd, memoryview(data)[:7], position)
    )

    book.append(b"x" * 50, b"y" * 50)

    assert book.values() == [b"x" * 50, b"y" * 50]


def test_tail_that_cannot_be_cut_at_once_is_cut_before_the_next_write(open_log: OpenLog) -> None:
    book = open_log()
    book.append(b"before")
    book.disk.free_bytes = 100
    book.disk.failing = {"ftruncate"}
    refused(book)
    refused(book)

    book.disk.free_bytes = None
    book.disk.failing = set()
    book.append(b"y")

    assert book.values() == [b"before", b"y"]
    assert book.crash().end_offset == 2
    assert (book.directory / "00000000000000000000.log").stat().st_size == book.log.size_bytes


def test_full_disk_at_a_roll(open_log: OpenLog) -> None:
    book = open_log(segment_bytes=BATCH_BYTES, index_interval_bytes=0)
    book.append(b"x" * 50)
    for free_bytes in (0, 5, 13):
        book.disk.free_bytes = free_bytes
        refused(book)

    book.disk.free_bytes = None
    assert book.append(b"x" * 50) == 1
    assert book.values() == [b"x" * 50] * 2
    book.reopen()
    assert book.values() == [b"x" * 50] * 2


def test_full_disk_with_a_new_leader_epoch(open_log: OpenLog) -> None:
    book = open_log()
    book.disk.free_bytes = 3
    with pytest.raises(KafkaError):
        book.append(b"x" * 50)

    book.disk.free_bytes = None
    book.append(b"x" * 50)
    book.reopen()

    assert book.log.end_offset_for_epoch(0) == (0, 1)


def test_failed_sync_ends_appending(open_log: OpenLog) -> None:
    book = open_log(flush_messages=1)
    book.append(b"synced")
    book.disk.failing = {"fsync"}
    refused(book)
    book.disk.failing = set()

    refused(book)
    assert book.values() == [b"synced", b"x" * 50]
    assert book.log.recovery_point == 1

    book.crash()
    assert book.append(b"again") == 2


class NoDescriptors:
    """While it `lasts`, no file can be opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lasts = True
        self._open = FailingDisk.open
        monkeypatch.setattr(FailingDisk, "open", lambda disk, path, flags: self._or_fail(disk, path, flags))

    def _or_fail(self, disk: FailingDisk, path: Path, flags: int) -> int:
        if self.lasts:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._open(disk, path, flags)


@pytest.mark.parametrize("is_cut", [False, True])
def test_without_a_descriptor_the_sync_waits_and_the_log_lives_on(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    book = open_log(flush_messages=1)
    book.append(b"synced")
    if is_cut:
        book.disk.free_bytes = 5
        refused(book)
        book.disk.free_bytes = None
    batch = bytes(produced(b"waits", producer_id=7, producer_epoch=0, base_sequence=0))
    book.disk.synced.clear()
    none = NoDescriptors(monkeypatch)
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            book.log.append(batch, now_ms=START_MS)
        assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (book.log.recovery_point, book.log.is_writable) == (1, True)
    none.lasts = False

    assert book.log.append(batch, now_ms=START_MS).duplicate
    assert book.log.recovery_point == book.log.end_offset == 2
    assert str(book.directory) in book.disk.synced
    assert any(name.endswith(".log") for name in book.disk.synced)


def test_an_index_that_cannot_be_read_leaves_nothing_of_a_batch(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = open_log()
    book.append(b"before")
    book.reopen()
    path = book.directory / "00000000000000000000.log"
    size_bytes, read = path.stat().st_size, Path.read_bytes

    def read_bytes(file: Path) -> bytes:
        if file.suffix == ".timeindex":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(file)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        refused(book)
    assert path.stat().st_size == size_bytes

    book.append(b"y")
    book.reopen()
    assert book.values() == [b"before", b"y"]


def test_what_is_synced_and_when(open_log: OpenLog) -> None:
    book = open_log(flush_messages=3)
    book.append(b"a", b"b")
    assert book.disk.synced == []
    book.append(b"c")

    assert {name.rsplit(".", 1)[-1] for name in book.disk.synced} >= {"log", "index", "timeindex"}
    assert str(book.directory) in book.disk.synced
    assert book.log.recovery_point == 3


def test_flush_ms(open_log: OpenLog) -> None:
    book = open_log(flush_ms=1000)
    book.log.flush_due(START_MS)
    book.append(b"a")
    book.log.flush_due(START_MS + 999)
    assert book.log.recovery_point == 0

    book.log.flush_due(START_MS + 1000)

    assert book.log.recovery_point == 1


def test_rolled_segments_are_synced_in_the_background(open_log: OpenLog) -> None:
    book = open_log(segment_bytes=BATCH_BYTES)
    for _ in range(3):
        book.append(b"x" * 50)
    assert book.disk.synced == []

    book.log.flush_due(START_MS)

    logs = [name.rsplit("/", 1)[-1] for name in book.disk.synced if name.endswith(".log")]
    assert logs == ["00000000000000000000.log", "00000000000000000001.log"]
    assert book.log.recovery_point == 2


def test_full_disk_at_close_is_an_unclean_end(open_log: OpenLog) -> None:
    book = open_log()
    book.append(b"a")
    book.disk.free_bytes = 0

    with pytest.raises(KafkaError):
        book.log.close(START_MS)

    book.disk.free_bytes = None
    assert book.crash().end_offset == 1


def test_closed_log_takes_nothing(open_log: OpenLog) -> None:
    book = open_log()
    book.log.close(START_MS)

    refused(book)


def test_file_that_is_gone(open_log: OpenLog) -> None:
    book = open_log(segment_bytes=BATCH_BYTES)
    book.append(b"x" * 50)
    book.append(b"x" * 50)
    book.log.close_files()
    (book.directory / "00000000000000000000.log").unlink()

    with pytest.raises(KafkaError) as error:
        book.log.read(0, 1000)
    assert error.value.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert book.log.read(1, 1000).records
