"""Tests of logs that are opened at their first use, and of changes to the log or topic before that."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import ErrorCode
from klamm.wire.messages import delete_topics, describe_log_dirs
from klamm_broker.log.manager import LogManager
from klamm_broker.log.partition_log import PartitionLog
from klamm_broker.topics.topic import Partition
from tests.unit.broker.broker_harness import BrokerHarness


def partition(harness: BrokerHarness, topic: str = "t", index: int = 0) -> Partition:
    found = harness.broker.topics.get(topic)
    assert found is not None
    there = found.partition(index)
    assert there is not None
    return there


def test_a_start_opens_no_log_and_a_request_opens_only_its_own(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", b"a", b"b")
    harness.reopen()
    assert harness.broker.logs.logs() == []
    assert harness.fetch("t").high_watermark == 2
    assert [log.partition for log in harness.broker.logs.logs()] == [0]
    assert partition(harness, index=1).opened_log is None


def test_other_logs_are_opened_in_the_background(harness: BrokerHarness) -> None:
    harness.create_topic("t", 3)
    harness.create_topic("u", 2)
    harness.reopen()
    harness.advance_ms(60)
    assert len(harness.broker.logs.logs()) == 5


def test_after_a_crash_the_start_recovers_large_logs_and_the_first_use_small_ones(harness: BrokerHarness) -> None:
    harness.create_topic("t", 3)
    harness.produce("t", b"a")
    for _ in range(70):
        harness.produce("t", os.urandom(1000), partition=1)
    crash(harness)
    assert [log.partition for log in harness.broker.logs.logs()] == [1]
    assert harness.fetch("t").high_watermark == 1
    assert harness.fetch("t", partition=1).high_watermark == 70


def crash(harness: BrokerHarness) -> None:
    """Reopen the broker without the marker of a clean stop and without its checkpoints."""
    before = {path.name: path.read_bytes() for path in harness.data_dir.iterdir() if path.is_file()}
    harness.broker.close()
    for path in harness.data_dir.iterdir():
        if path.is_file() and not path.name.startswith((".lock", "klamm.db", "meta")):
            path.unlink()
            if path.name in before:
                path.write_bytes(before[path.name])
    harness.open()


def test_a_torn_tail_is_cut_at_the_first_use(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.produce("t", b"a")
    (segment,) = (harness.data_dir / "t-0").glob("*.log")
    crash(harness)
    with segment.open("ab") as file:
        file.write(b"torn")
    assert harness.fetch("t").high_watermark == 1
    assert harness.produce("t", b"b").base_offset == 1


def test_configs_that_change_before_the_first_use_apply(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.reopen()
    topic = harness.broker.topics.get("t")
    assert topic is not None
    harness.broker.topics.set_overrides(topic, {"retention.ms": "1234"})
    assert partition(harness).opened_log is None
    assert partition(harness).log.config.retention_ms == 1234


def test_a_topic_can_be_deleted_before_the_first_use(harness: BrokerHarness) -> None:
    harness.create_topic("t")
    harness.reopen()
    gone = partition(harness)
    topics = [delete_topics.DeleteTopicState("t")]
    assert harness.call(delete_topics.DeleteTopicsRequest(topics, timeout_ms=1000), 6).responses[0].error_code == 0
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PARTITION"):
        _ = gone.log
    assert not (harness.data_dir / "t-0").exists()


def test_a_log_that_cannot_be_opened_fails_only_its_own_requests(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", b"a", partition=1)
    harness.advance_ms(60)
    harness.reopen()
    directory = harness.data_dir / "t-0"
    aside = directory.with_name("aside")
    directory.rename(aside)
    directory.write_text("no directory")
    assert harness.produce("t", b"a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.fetch("t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.fetch("t", partition=1).high_watermark == 1
    described = harness.call(describe_log_dirs.DescribeLogDirsRequest(None), 4).results[0]
    assert [each.partition_index for each in described.topics[0].partitions] == [1]
    directory.unlink()
    aside.rename(directory)
    assert harness.produce("t", b"a").base_offset == 0


@contextlib.contextmanager
def first_log_unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the disk fail to read the log of each topic's first partition."""
    opened = LogManager.get_or_create

    def fails(manager: LogManager, topic: str, index: int, *given: Any, **options: Any) -> PartitionLog:
        if index == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(manager, topic, index, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LogManager, "get_or_create", fails)
        yield


def test_a_large_log_that_cannot_be_opened_after_a_crash_does_not_stop_the_start(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t", 2)
    for index in range(2):
        for _ in range(70):
            harness.produce("t", os.urandom(1000), partition=index)
    with first_log_unreadable(monkeypatch):
        crash(harness)
        assert harness.fetch("t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.fetch("t", partition=1).high_watermark == 70
    assert harness.fetch("t").high_watermark == 70


def test_a_log_that_was_not_opened_stays_as_checkpointed(harness: BrokerHarness) -> None:
    harness.create_topic("t", 2)
    for index in range(2):
        harness.produce("t", b"a", b"b", partition=index)
        partition(harness, index=index).log.delete_records(1)
    harness.reopen()
    assert harness.fetch("t", 1).log_start_offset == 1
    harness.reopen()
    assert harness.fetch("t", 1, partition=1).log_start_offset == 1


def test_an_adopted_log_that_cannot_be_opened_does_not_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open()
    harness.create_topic("t", 2)
    for index in range(2):
        harness.produce("t", b"a", partition=index, producer_id=5000 + index, producer_epoch=0, base_sequence=0)
    harness.broker.close()
    for path in tmp_path.glob("klamm.db*"):
        path.unlink()
    with first_log_unreadable(monkeypatch):
        harness.open()
        assert "t-0 cannot be opened: [Errno 5]" in caplog.text
        assert harness.fetch("t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert harness.fetch("t", partition=1).high_watermark == 1
        assert harness.broker.producer_ids.allocate() > 5001
    assert harness.fetch("t").high_watermark == 1
    harness.broker.close()


def test_ids_of_producers_in_adopted_logs_are_remembered(tmp_path: Path) -> None:
    harness = BrokerHarness(tmp_path)
    harness.open()
    harness.create_topic("t")
    harness.produce("t", b"a", producer_id=5000, producer_epoch=0, base_sequence=0)
    harness.broker.close()
    for path in tmp_path.glob("klamm.db*"):
        path.unlink()
    harness.open()
    harness.reopen()
    assert harness.broker.logs.logs() == []
    assert harness.broker.producer_ids.allocate() > 5000
    harness.broker.close()
