"""Tests of syncs on another thread: after each roll, and for waiting requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm import ErrorCode, KafkaError
from klamm_broker.log.checkpoints import read_offsets
from tests.unit.log.playbook import START_MS, FailingDisk, LogPlaybook, produced
from tests.unit.log.test_manager import Managed
from tests.waiting import wait_until

OpenLog = Callable[..., LogPlaybook]
SMALL: dict[str, object] = {"segment_bytes": 200}


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    managed = Managed(tmp_path / "data")
    yield managed
    managed.manager.close()


def fill(managed: Managed, count: int = 8) -> None:
    for number in range(count):
        managed.log(**SMALL).append(produced(b"%d" % number * 10), now_ms=START_MS)


def test_a_roll_is_synced_and_moves_the_recovery_point(managed: Managed) -> None:
    fill(managed)
    log = managed.log(**SMALL)
    assert not any(each.endswith(".log") for each in managed.disk.synced)
    assert log.recovery_point == 0

    managed.disk.synced.clear()
    managed.manager.flusher.run_pending()

    assert log.recovery_point == log.segments[-1].base_offset == 6
    synced = {os.path.basename(name) for name in managed.disk.synced}
    assert {f"{base:020d}.log" for base in (0, 2, 4)} <= synced
    assert "00000000000000000006.log" not in synced
    managed.manager.checkpoint(START_MS)
    assert read_offsets(managed.data_dir / "recovery-point-offset-checkpoint") == {("topic", 0): 6}


def test_a_start_after_a_kill_reads_from_the_recovery_point_on(managed: Managed) -> None:
    fill(managed)
    managed.manager.flusher.run_pending()
    managed.manager.checkpoint(START_MS)
    index = managed.data_dir / "topic-0" / "00000000000000000000.timeindex"
    index.write_bytes(b"")

    managed.kill()

    assert managed.log(**SMALL).end_offset == 8
    assert index.read_bytes() == b""


def test_one_sync_serves_all_requests_that_wait_for_a_log(managed: Managed) -> None:
    fill(managed, 2)
    log = managed.log(**SMALL)
    managed.disk.synced.clear()
    results: list[KafkaError | None] = []
    for offset in (1, 2, 1):
        managed.manager.flusher.request(log, offset, results.append)

    managed.manager.flusher.run_pending()

    assert results == [None] * 3
    assert log.recovery_point == 2
    assert len([name for name in managed.disk.synced if name.endswith(".log")]) == 1


def test_a_failed_sync_is_reported_to_its_waiters(managed: Managed) -> None:
    fill(managed, 2)
    managed.disk.failing = {"fsync"}
    results: list[KafkaError | None] = []
    for _ in range(2):
        managed.manager.flusher.request(managed.log(), 2, results.append)
        managed.manager.flusher.run_pending()
    managed.disk.failing = set()

    assert len(results) == 2
    assert all(isinstance(error, KafkaError) for error in results)


class Broken:
    """A log whose sync raises an unexpected exception."""

    directory = Path("broken-0")

    def flush_to(self, offset: int) -> None:
        raise RuntimeError("unexpected")


def test_an_unexpected_error_is_reported_and_ends_no_other_sync(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    fill(managed, 2)
    results: list[KafkaError | None] = []
    managed.manager.flusher.request(Broken(), 1, results.append)
    managed.manager.flusher.request(managed.log(), 2, results.append)

    managed.manager.flusher.run_pending()

    assert [None if error is None else error.error_code for error in results] == [ErrorCode.UNKNOWN_SERVER_ERROR, None]
    assert "broken-0: the sync failed unexpectedly" in caplog.text


def test_a_batch_that_is_sent_again_after_a_failed_sync_is_refused(open_log: OpenLog) -> None:
    playbook = open_log(flush_messages=1)
    batch = bytes(produced(b"x", producer_id=7, producer_epoch=0, base_sequence=0))
    playbook.disk.failing = {"fsync"}
    for _ in range(2):
        with pytest.raises(KafkaError):
            playbook.log.append(batch, now_ms=START_MS)


def test_an_index_that_is_not_in_memory_is_synced_too(open_log: OpenLog) -> None:
    playbook = open_log(**SMALL)
    for number in range(4):
        playbook.append(b"%d" % number * 10)
    playbook.log.release_indexes()
    playbook.log.flush_to(2)

    assert {os.path.basename(name) for name in playbook.disk.synced} >= {
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
    }


def test_the_thread_syncs_while_appends_continue(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, release = threading.Event(), threading.Event()

    def slow(_disk: FailingDisk, _descriptor: int) -> None:
        syncing.set()
        assert release.wait(60)

    log = managed.log(**SMALL)
    managed.manager.flusher.start()
    monkeypatch.setattr(FailingDisk, "fsync", slow)
    try:
        fill(managed, 3)
        assert syncing.wait(60)
        fill(managed, 3)
        assert log.end_offset == 6
    finally:
        release.set()
    wait_until(lambda: log.recovery_point >= 4)
