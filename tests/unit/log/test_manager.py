"""Tests of a data directory with many logs: locks, checkpoints, deletion, periodic work, restarts."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klamm import ErrorCode, KafkaError
from klamm.runtime import PLATFORM
from klamm.testing import ManualClock
from klamm_broker.log.checkpoints import CorruptCheckpointError, read_offsets, read_partition_metadata
from klamm_broker.log.config import LogConfig
from klamm_broker.log.directory_lock import DataDirectoryLockedError
from klamm_broker.log.file_operations import UnsyncedFileOperations
from klamm_broker.log.files import FileRegion
from klamm_broker.log.manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from tests.unit.log.playbook import START_MS, TOPIC_ID, FailingDisk, config, fetch, produced
from tests.waiting import open_below

MAX_BYTES_OF_AN_OPEN_LOG = 2_700


class Managed:
    """A manager on a directory. It can be opened again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.clock = ManualClock(START_MS)
        self.disk = FailingDisk()
        self.manager = self.start()

    def start(self) -> LogManager:
        self.manager = LogManager(self.data_dir, clock=self.clock, operations=self.disk, max_open_files=4)
        self.manager.open()
        return self.manager

    def restart(self) -> LogManager:
        self.manager.close()
        return self.start()

    def kill(self) -> LogManager:
        """Simulate a kill: nothing more is written, and the lock is free."""
        for each in self.manager.logs():
            each.close_files()
        descriptor = self.manager._directory_lock._descriptor
        assert descriptor is not None
        os.close(descriptor)
        return self.start()

    def log(self, partition: int = 0, topic: str = "topic", **configs: object) -> PartitionLog:
        return self.manager.get_or_create(topic, partition, TOPIC_ID, config(**configs))

    def names(self) -> set[str]:
        return {path.name for path in self.data_dir.iterdir()}


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    managed = Managed(tmp_path / "data")
    yield managed
    managed.manager.close()


def append(log: PartitionLog, *values: bytes) -> None:
    log.append(produced(*values), now_ms=START_MS)


def test_new_partition_gets_a_directory_with_its_topic_id(managed: Managed) -> None:
    log = managed.log(3)

    assert managed.manager.get("topic", 3) is log
    assert managed.log(3) is log
    directory = managed.data_dir / "topic-3"
    assert (directory / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(directory) == TOPIC_ID
    assert (directory / "00000000000000000000.log").exists()


def test_second_manager_is_refused(managed: Managed) -> None:
    with pytest.raises(DataDirectoryLockedError, match="in use"):
        LogManager(managed.data_dir, clock=managed.clock).open()


@pytest.mark.skipif(PLATFORM.name != "linux", reason="the locks of other systems do not keep Kafka out")
def test_a_refused_second_manager_does_not_release_the_lock(managed: Managed) -> None:
    with pytest.raises(DataDirectoryLockedError):
        LogManager(managed.data_dir, clock=managed.clock).open()
    # A lock that belongs to the process, as Java's.
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    locking = [sys.executable, "-c", program, str(managed.data_dir / ".lock")]
    refused = subprocess.run(locking, capture_output=True, text=True, timeout=60, check=False)
    assert "BlockingIOError" in refused.stderr
    managed.manager.close()
    assert subprocess.run(locking, timeout=60, check=False).returncode == 0


def test_a_file_system_without_locks_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for call in ("fcntl", "flock"):
        monkeypatch.setattr(fcntl, call, refuse)
    with pytest.raises(OSError, match="No locks available"):
        LogManager(tmp_path, clock=ManualClock()).open()


def test_manager_of_another_process_is_refused(managed: Managed) -> None:
    program = (
        "import sys; from pathlib import Path; from klamm import ManualClock\n"
        "from klamm_broker.log.directory_lock import DataDirectoryLockedError\n"
        "from klamm_broker.log.manager import LogManager\n"
        "try: LogManager(Path(sys.argv[1]), clock=ManualClock()).open()\n"
        "except DataDirectoryLockedError as error: print(error)"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program, str(managed.data_dir)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "is in use by another broker" in done.stdout


def test_clean_restart_opens_the_logs_without_recovery(managed: Managed) -> None:
    for partition in range(5):
        append(managed.log(partition), b"%d" % partition)
    managed.manager.close()
    assert ".kafka_cleanshutdown" in managed.names()
    assert read_offsets(managed.data_dir / "recovery-point-offset-checkpoint") == {
        ("topic", partition): 1 for partition in range(5)
    }

    managed.start()

    assert ".kafka_cleanshutdown" not in managed.names()
    for partition in range(5):
        assert [record.value for record in fetch(managed.log(partition), 0)] == [b"%d" % partition]


def test_restart_after_a_kill_recovers(managed: Managed) -> None:
    append(managed.log(), b"a")
    append(managed.log(), b"b")
    path = managed.data_dir / "topic-0" / "00000000000000000000.log"
    with path.open("ab") as file:
        file.write(produced(b"torn")[:-1])

    managed.kill()

    assert managed.log().end_offset == 2
    append(managed.log(), b"c")
    assert [record.value for record in fetch(managed.log(), 0)] == [b"a", b"b", b"c"]


def test_clean_restart_does_not_read_the_log(managed: Managed) -> None:
    append(managed.log(), *[b"x" * 1000] * 5)
    managed.manager.close()
    path = managed.data_dir / "topic-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    managed.start()

    assert managed.log().end_offset == 5


def test_directories_that_were_never_opened_stay_unclean(managed: Managed) -> None:
    append(managed.log(0), b"a")
    append(managed.log(1), b"b")
    managed.kill()
    managed.log(0)
    managed.restart()
    assert not managed.manager.is_clean

    managed.log(0)
    managed.log(1)
    managed.restart()
    assert managed.manager.is_clean


def test_a_start_offset_that_moved_survives_a_kill(managed: Managed) -> None:
    append(managed.log(), b"a", b"b", b"c")
    managed.log().delete_records(2)

    managed.kill()

    assert managed.log().log_start_offset == 2
    assert read_offsets(managed.data_dir / "log-start-offset-checkpoint") == {("topic", 0): 2}


def test_a_checkpoint_keeps_entries_of_logs_that_are_not_yet_open(managed: Managed) -> None:
    append(managed.log(0), b"a", b"b")
    append(managed.log(1), b"a", b"b")
    managed.log(0).delete_records(1)
    managed.restart()
    managed.log(1)

    managed.manager.checkpoint(START_MS)
    managed.manager.checkpoint_start_offsets(START_MS)

    assert read_offsets(managed.data_dir / "log-start-offset-checkpoint") == {("topic", 0): 1}
    assert read_offsets(managed.data_dir / "recovery-point-offset-checkpoint") == {("topic", 0): 2, ("topic", 1): 2}


@pytest.mark.parametrize("content", ["0", "0\n5\ntopic 0 1\n", "7\n0\n", "0\n1\ntopic zero 1\n", "0\n1\ntopic 1\n"])
def test_damaged_checkpoints_lead_to_recovery(managed: Managed, content: str) -> None:
    append(managed.log(), b"a")
    managed.manager.close()
    path = managed.data_dir / "recovery-point-offset-checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptCheckpointError):
        read_offsets(path)

    managed.start()

    assert managed.log().end_offset == 1


def test_empty_checkpoint_has_no_entries(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()

    assert read_offsets(tmp_path / "checkpoint") == {}


def test_directory_of_another_topic_is_set_aside(managed: Managed) -> None:
    append(managed.log(), b"old", b"older")
    managed.log().delete_records(1)
    managed.restart()

    log = managed.manager.get_or_create("topic", 0, TOPIC_ID[::-1], config())

    assert (log.log_start_offset, log.end_offset) == (0, 0)
    stray = next(name for name in managed.names() if name.endswith("-stray"))
    assert read_partition_metadata(managed.data_dir / stray) == TOPIC_ID
    managed.restart()
    managed.manager.checkpoint(START_MS)
    assert stray in managed.names()


def test_a_directory_without_an_id_is_adopted(managed: Managed) -> None:
    append(managed.log(), b"a")
    managed.manager.close()
    (managed.data_dir / "topic-0" / "partition.metadata").unlink()

    managed.start()

    assert managed.log().end_offset == 1
    assert read_partition_metadata(managed.data_dir / "topic-0") == TOPIC_ID


def test_a_damaged_log_is_compacted_once(managed: Managed, caplog: pytest.LogCaptureFixture) -> None:
    log = managed.log(cleanup_policy="compact", segment_bytes=100)
    for _ in range(4):
        append(log, b"a")
    path = managed.data_dir / "topic-0" / "00000000000000000001.log"
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    managed.manager.compaction.clean(START_MS)

    assert "no longer compacted" in caplog.text
    assert not managed.manager.compaction.has_cleanable(START_MS)
    assert [record.value for record in fetch(log, 0)] == [b"a"]


def test_the_directory_of_a_deleted_partition_is_removed_later(managed: Managed) -> None:
    log = managed.log(file_delete_delay_ms=500)
    append(log, b"a")
    records = log.read(0, 100).records
    assert isinstance(records, FileRegion)

    managed.manager.delete("topic", 0)

    assert managed.manager.get("topic", 0) is None
    renamed = next(name for name in managed.names() if name.startswith("topic-0."))
    assert renamed.endswith("-delete")
    with pytest.raises(KafkaError) as error:
        append(log, b"b")
    assert error.value.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [record.value for record in fetch(log, 0)] == [b"a"]
    managed.manager.flush_due(START_MS)
    managed.manager.checkpoint(START_MS + 499)
    assert renamed in managed.names()
    managed.manager.checkpoint(START_MS + 500)
    assert renamed not in managed.names()
    assert records.read_bytes()
    records.close()


def test_a_deleted_partition_can_be_created_again(managed: Managed) -> None:
    append(managed.log(), b"old")
    managed.log().delete_records(1)
    managed.manager.delete("topic", 0)
    other_id = TOPIC_ID[::-1]

    log = managed.manager.get_or_create("topic", 0, other_id, LogConfig())

    assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert read_partition_metadata(managed.data_dir / "topic-0") == other_id


def test_partitions_that_are_closed_or_missing_can_be_deleted(managed: Managed) -> None:
    append(managed.log(), b"a")
    managed.restart()

    managed.manager.delete("topic", 0)
    managed.manager.delete("topic", 9)

    managed.manager.checkpoint(START_MS)
    assert not [name for name in managed.names() if name.startswith("topic-")]


def test_deletion_is_finished_by_the_next_start(managed: Managed) -> None:
    append(managed.log(), b"a")
    managed.manager.delete("topic", 0)

    managed.restart()
    managed.manager.checkpoint(START_MS)

    assert not [name for name in managed.names() if name.startswith("topic-")]


def test_partitions_with_long_topic_names_are_deleted(managed: Managed) -> None:
    name = "t" * 249
    managed.log(99999, topic=name)

    managed.manager.delete(name, 99999)

    assert not [each for each in managed.names() if each.startswith("t") and not each.endswith("-delete")]


@pytest.mark.parametrize(
    "work",
    [
        LogManager.flush_due,
        LogManager.delete_old_segments,
        LogManager.checkpoint,
        LogManager.checkpoint_start_offsets,
        lambda manager, now_ms: manager.compaction.clean(now_ms),
    ],
    ids=["flush_due", "delete_old_segments", "checkpoint", "checkpoint_start_offsets", "clean"],
)
def test_one_broken_log_does_not_affect_the_work_on_others(
    managed: Managed, work: Callable[[LogManager, int], None]
) -> None:
    settings: dict[str, object] = {"segment_bytes": 100, "retention_ms": 0, "cleanup_policy": "compact,delete"}
    for partition in range(2):
        log = managed.log(partition, **settings)
        append(log, b"a")
        append(log, b"b")
    managed.disk.failing = {"fsync", "rename"}

    work(managed.manager, START_MS + 10)

    managed.disk.failing = set()
    assert [record.value for record in fetch(managed.log(1), 1)] == [b"b"]


def test_retention_of_all_logs(managed: Managed) -> None:
    for partition in range(3):
        append(managed.log(partition, retention_ms=1000), b"a")

    managed.manager.delete_old_segments(START_MS + 1001)

    assert [log.log_start_offset for log in managed.manager.logs()] == [1, 1, 1]


def test_compaction_continues_where_it_stopped(managed: Managed) -> None:
    log = managed.log(cleanup_policy="compact", segment_bytes=100)
    for _ in range(4):
        append(log, b"a")
    assert managed.manager.compaction.has_cleanable(START_MS)
    managed.manager.compaction.clean(START_MS)
    assert not managed.manager.compaction.has_cleanable(START_MS)
    assert read_offsets(managed.data_dir / "cleaner-offset-checkpoint") == {("topic", 0): 3}

    managed.restart()
    managed.log(cleanup_policy="compact", segment_bytes=100)

    assert not managed.manager.compaction.has_cleanable(START_MS)


def test_a_partition_recreated_during_compaction_starts_dirty(managed: Managed) -> None:
    log = managed.log(cleanup_policy="compact", segment_bytes=100)
    for _ in range(4):
        append(log, b"a")

    def made_again_meanwhile() -> None:
        managed.disk.after_rename = None
        managed.manager.delete("topic", 0)
        managed.log(cleanup_policy="compact", segment_bytes=100)

    managed.disk.after_rename = made_again_meanwhile
    managed.manager.compaction.clean(START_MS)

    again = managed.manager.get("topic", 0)
    assert again is not None
    assert again is not log
    for _ in range(4):
        append(again, b"a")
    assert managed.manager.compaction.has_cleanable(START_MS)


def test_full_disk_at_the_end_is_an_unclean_end(managed: Managed) -> None:
    append(managed.log(), b"a")
    managed.disk.free_bytes = 0
    managed.manager.close()
    managed.disk.free_bytes = None
    assert ".kafka_cleanshutdown" not in managed.names()

    managed.start()

    assert managed.log().end_offset == 1


def test_log_that_failed_is_not_clean(managed: Managed) -> None:
    log = managed.log(flush_messages=1)
    managed.disk.failing = {"fsync"}
    with pytest.raises(KafkaError):
        append(log, b"a")
    managed.disk.failing = set()

    managed.restart()

    assert not managed.manager.is_clean
    append(managed.log(), b"b")
    assert managed.log().end_offset == 2


def test_many_partitions_need_few_descriptors(managed: Managed, tmp_path: Path) -> None:
    before = open_below(tmp_path)
    for partition in range(40):
        append(managed.log(partition), b"a")

    assert open_below(tmp_path) <= before + 4
    managed.manager.delete_old_segments(START_MS)
    managed.manager.flush_due(START_MS)
    assert open_below(tmp_path) <= before + 4


def test_an_open_log_takes_little_memory(tmp_path: Path) -> None:
    """This is the memory that tracemalloc counts for a log with one batch.

    With memory of allocators and other parts it is 4 KiB.
    """
    manager = LogManager(tmp_path, clock=ManualClock(START_MS), operations=UnsyncedFileOperations())
    manager.open()
    batch = produced(*[b"x" * 100] * 10)

    def use(topic: str, partitions: int) -> None:
        log_config = LogConfig()
        for index in range(partitions):
            opened = manager.get_or_create(topic, index, TOPIC_ID, log_config)
            opened.append(bytearray(batch), now_ms=START_MS)

    use("before", 20)
    found = []
    tracemalloc.start()
    try:
        # The test uses the least of three measurements, because a table of the interpreter may grow meanwhile.
        for topic in ("a", "b", "c"):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            use(topic, 300)
            gc.collect()
            found.append((tracemalloc.get_traced_memory()[0] - before) / 300)
    finally:
        tracemalloc.stop()
    manager.close()
    assert min(found) < MAX_BYTES_OF_AN_OPEN_LOG
