"""Tests of periodic work on logs: it runs, and a slow disk delays no timer."""

import threading

import pytest

from klamm.testing import EmbeddedServer
from klamm.wire.records import Record, encode_batch
from klamm_broker.log import cleaner
from klamm_broker.log.manager import LogManager
from tests.unit.broker.broker_harness import BrokerHarness

MANY_BATCHES = 100_000


def test_a_slow_sync_delays_no_timer(monkeypatch):
    syncing, release, fired = threading.Event(), threading.Event(), threading.Event()

    def slow(self, now_ms):
        syncing.set()
        assert release.wait(60)

    monkeypatch.setattr(LogManager, "flush_due", slow)
    with EmbeddedServer(["broker.log.flush.scheduler.interval.ms=5"]) as server:
        try:
            assert syncing.wait(60)
            server.server.scheduler.schedule(1, fired.set)
            assert fired.wait(60)
        finally:
            release.set()


def test_failed_work_is_repeated(monkeypatch):
    runs = threading.Semaphore(0)

    def failing(self, now_ms):
        runs.release()
        raise OSError("on purpose")

    monkeypatch.setattr(LogManager, "checkpoint", failing)
    with EmbeddedServer(["broker.log.flush.offset.checkpoint.interval.ms=5"]):
        for _ in range(3):
            assert runs.acquire(timeout=60)


@pytest.mark.parametrize(
    ("key", "method", "other"),
    [
        ("log.flush.offset.checkpoint.interval.ms", "checkpoint", "checkpoint_start_offsets"),
        ("log.flush.start.offset.checkpoint.interval.ms", "checkpoint_start_offsets", "checkpoint"),
    ],
)
def test_each_checkpoint_has_its_interval(monkeypatch, key, method, other):
    runs, others = threading.Semaphore(0), []
    monkeypatch.setattr(LogManager, method, lambda _self, _now_ms: runs.release())
    monkeypatch.setattr(LogManager, other, lambda _self, now_ms: others.append(now_ms))
    with EmbeddedServer([f"broker.{key}=5"]):
        for _ in range(3):
            assert runs.acquire(timeout=60)
    assert not others


def test_a_running_compaction_does_not_delay_the_close(monkeypatch, tmp_path):
    harness = BrokerHarness(tmp_path)
    broker = harness.open(log_cleaner_backoff_ms=10)
    harness.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", internal_segment_bytes="150")
    batch = bytes(encode_batch([Record(timestamp_ms=harness.clock.wall_ms(), key=b"k", value=b"v" * 40)]))
    for _ in range(3):
        assert harness.produce_batches("t", batch).error_code == 0
    started, closing, seen = threading.Event(), threading.Event(), []
    read_batches, stop = cleaner.read_batches, broker.logs.compaction.stop

    def long_segment(*args):
        (first, *_) = read_batches(*args)
        for _ in range(MANY_BATCHES):
            seen.append(first)
            started.set()
            assert closing.wait(60)
            yield first

    def stop_and_go_on():
        stop()
        closing.set()

    monkeypatch.setattr(cleaner, "read_batches", long_segment)
    monkeypatch.setattr(broker.logs.compaction, "stop", stop_and_go_on)
    harness.advance_ms(20)
    assert started.wait(60)
    broker.close()
    assert len(seen) == 1
