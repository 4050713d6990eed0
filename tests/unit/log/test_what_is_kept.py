"""Tests that data which may still be useful is kept: of invalid batches, unknown directories, and on full disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klamm_broker.log.checkpoints import read_offsets
from klamm_broker.log.manager import LogManager
from tests.unit.log.playbook import START_MS, TOPIC_ID, FailingDisk, LogPlaybook, config, fetch, produced
from tests.unit.log.test_manager import Managed

OpenLog = Callable[..., LogPlaybook]
OTHER_ID = bytes(reversed(range(16)))
CHECKPOINTS = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint")


@pytest.fixture
def managed(tmp_path: Path) -> Managed:
    return Managed(tmp_path / "data")


def deleted_up_to(managed: Managed, offset: int) -> None:
    """Return a topic whose first records a client has deleted, with this state in all checkpoints."""
    log = managed.log()
    log.append(produced(*[b"old"] * offset), now_ms=START_MS)
    log.delete_records(offset)
    log.flush(START_MS)
    managed.manager.checkpoint(START_MS)


def values(managed: Managed, topic_id: bytes) -> list[bytes | None]:
    log = managed.manager.get_or_create("topic", 0, topic_id, config())
    return [record.value for record in fetch(log, log.log_start_offset)]


def test_a_deletion_removes_the_entries_from_the_checkpoints(managed: Managed) -> None:
    deleted_up_to(managed, 10)
    managed.log(1).append(produced(b"other"), now_ms=START_MS)
    managed.manager.checkpoint(START_MS)

    managed.manager.delete("topic", 0)

    assert all(("topic", 0) not in read_offsets(managed.data_dir / name) for name in CHECKPOINTS)
    assert ("topic", 1) in read_offsets(managed.data_dir / "recovery-point-offset-checkpoint")


def test_records_of_a_recreated_topic_survive_a_kill(managed: Managed) -> None:
    deleted_up_to(managed, 10)
    managed.manager.delete("topic", 0)
    again = managed.manager.get_or_create("topic", 0, OTHER_ID, config())
    again.append(produced(b"acknowledged"), now_ms=START_MS)

    managed.kill()

    assert values(managed, OTHER_ID) == [b"acknowledged"]


def test_a_name_cannot_be_used_again_while_the_checkpoints_cannot_be_written(managed: Managed) -> None:
    deleted_up_to(managed, 10)
    managed.disk.free_bytes = 0
    assert managed.manager.delete_all([("topic", 0)])
    with pytest.raises(OSError, match="no space"):
        managed.manager.get_or_create("topic", 0, OTHER_ID, config())

    managed.disk.free_bytes = None
    again = managed.manager.get_or_create("topic", 0, OTHER_ID, config())
    again.append(produced(b"acknowledged"), now_ms=START_MS)
    managed.kill()

    assert values(managed, OTHER_ID) == [b"acknowledged"]


def test_entries_of_another_topic_id_are_ignored(managed: Managed, caplog: pytest.LogCaptureFixture) -> None:
    """Another program may leave such a state: a new directory, with old checkpoints."""
    deleted_up_to(managed, 10)
    kept = {name: (managed.data_dir / name).read_bytes() for name in CHECKPOINTS[:2]}
    ids = (managed.data_dir / "checkpoint-topic-ids").read_bytes()
    managed.manager.delete("topic", 0)
    again = managed.manager.get_or_create("topic", 0, OTHER_ID, config())
    again.append(produced(b"acknowledged"), now_ms=START_MS)
    for name, content in {**kept, "checkpoint-topic-ids": ids}.items():
        (managed.data_dir / name).write_bytes(content)

    managed.kill()

    assert values(managed, OTHER_ID) == [b"acknowledged"]
    assert "belongs to an earlier topic of that name: ignored" in caplog.text


def test_a_write_that_began_before_a_deletion_does_not_restore_its_entries(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_up_to(managed, 10)
    original = FailingDisk.rename
    deleted: list[object] = []

    def rename(disk: FailingDisk, source: Path, target: Path) -> None:
        if target.name == CHECKPOINTS[0] and not deleted:
            deleted.append(managed.manager._logs.pop(("topic", 0)))
        original(disk, source, target)

    monkeypatch.setattr(FailingDisk, "rename", rename)
    managed.manager.checkpoint_start_offsets(START_MS)
    managed.manager.delete("topic", 0)

    assert deleted
    assert ("topic", 0) not in read_offsets(managed.data_dir / CHECKPOINTS[0])


def test_a_log_that_ends_before_its_start_is_set_aside(open_log: OpenLog) -> None:
    playbook = open_log()
    playbook.append(b"precious")
    content = (playbook.directory / "00000000000000000000.log").read_bytes()
    playbook.log.close(START_MS)

    for number in range(2):
        playbook.open(is_clean=False, log_start_offset=10 * (number + 1))
        assert playbook.append(b"x") == 10 * (number + 1)
        playbook.log.close(START_MS)

    assert (playbook.directory / "00000000000000000000.log.set-aside").read_bytes() == content
    assert (playbook.directory / "00000000000000000010.log.set-aside").exists()


def test_segments_after_an_invalid_batch_are_set_aside(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    contents = {path.name: path.read_bytes() for path in sorted(playbook.directory.glob("*.log"))}
    path = playbook.directory / "00000000000000000002.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    playbook.crash()

    assert playbook.values() == [b"%d" % number * 10 for number in range(3)]
    for name in list(contents)[2:]:
        assert (playbook.directory / f"{name}.set-aside").read_bytes() == contents[name]
    assert playbook.append(b"on it goes") == 3


def test_the_rest_of_a_segment_after_an_invalid_batch_is_kept(open_log: OpenLog) -> None:
    playbook = open_log()
    for number in range(3):
        playbook.append(b"%d" % number * 10)
    path = playbook.directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    data[2 * third - 1] ^= 0xFF
    path.write_bytes(data)

    playbook.crash()

    assert playbook.values() == [b"0" * 10]
    assert (playbook.directory / f"{path.name}.{third}.set-aside").read_bytes() == data[third:]


@pytest.mark.parametrize("tail", [b"\0" * 500, bytes(produced(b"torn"))[:70]])
def test_an_incomplete_write_leaves_no_file_aside(open_log: OpenLog, tail: bytes) -> None:
    playbook = open_log()
    playbook.append(b"sound")
    with (playbook.directory / "00000000000000000000.log").open("ab") as file:
        file.write(tail)

    playbook.crash()

    assert playbook.values() == [b"sound"]
    assert not [name for name in playbook.files() if "set-aside" in name]


def test_retention_frees_a_full_disk(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200, retention_bytes=300, file_delete_delay_ms=0)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    playbook.disk.free_bytes = 0

    with pytest.raises(Exception, match="no space"):
        playbook.log.delete_old_segments(playbook.clock.wall_ms())
    playbook.context.deletions.run_due(playbook.clock.wall_ms())

    assert sorted(name for name in playbook.files() if ".log" in name) == [f"{base:020d}.log" for base in (4, 6)]


def test_retention_of_everything_frees_a_full_disk_except_for_the_last_segment(open_log: OpenLog) -> None:
    playbook = open_log(segment_bytes=200, retention_ms=1, file_delete_delay_ms=0)
    for number in range(8):
        playbook.append(b"%d" % number * 10)
    playbook.clock.advance_ms(1000)
    playbook.disk.free_bytes = 0

    with pytest.raises(Exception, match="no space"):
        playbook.log.delete_old_segments(playbook.clock.wall_ms())
    playbook.context.deletions.run_due(playbook.clock.wall_ms())

    assert [name for name in playbook.files() if ".log" in name] == ["00000000000000000006.log"]


def test_a_new_partition_does_not_use_a_directory_without_a_topic_id(managed: Managed) -> None:
    managed.log().append(produced(b"old"), now_ms=START_MS)
    managed.manager.close()
    (managed.data_dir / "topic-0" / "partition.metadata").write_bytes(b"")
    managed.start()

    managed.manager.make_room("topic", [0])
    again = managed.manager.get_or_create("topic", 0, OTHER_ID, config())

    assert again.end_offset == 0
    assert any(name.endswith("-stray") for name in managed.names())


@pytest.mark.parametrize("is_known", [True, False])
def test_the_log_says_why_a_directory_is_set_aside(
    managed: Managed, caplog: pytest.LogCaptureFixture, is_known: bool
) -> None:
    managed.log().append(produced(b"old"), now_ms=START_MS)
    managed.manager.close()
    if not is_known:
        (managed.data_dir / "topic-0" / "partition.metadata").write_bytes(b"")
    managed.start()

    managed.manager.make_room("topic", [0])

    assert ("belongs to another topic" in caplog.text) is is_known
    assert ("does not name its topic" in caplog.text) is not is_known


def test_an_existing_topic_uses_its_directory_without_a_topic_id(managed: Managed) -> None:
    managed.log().append(produced(b"old"), now_ms=START_MS)
    managed.manager.close()
    (managed.data_dir / "topic-0" / "partition.metadata").write_bytes(b"")
    managed.start()

    assert values(managed, TOPIC_ID) == [b"old"]


def test_an_open_log_of_another_topic_is_set_aside(managed: Managed) -> None:
    managed.log().append(produced(b"old"), now_ms=START_MS)

    again = managed.manager.get_or_create("topic", 0, OTHER_ID, config())

    assert again.end_offset == 0
    assert LogManager.get(managed.manager, "topic", 0) is again


@pytest.mark.parametrize("call", ["fsync", "unlink"])
def test_a_failed_start_leaves_the_directory_unlocked(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    managed.log().append(produced(b"kept"), now_ms=START_MS)
    managed.manager.close()

    def failing(*_arguments: object) -> None:
        raise OSError(5, "on purpose")

    monkeypatch.setattr(FailingDisk, call, failing)
    with pytest.raises(OSError, match="on purpose"):
        managed.start()
    monkeypatch.undo()

    managed.start()
    assert str(managed.data_dir) in managed.disk.synced
    assert values(managed, TOPIC_ID) == [b"kept"]
