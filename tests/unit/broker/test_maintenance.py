"""Periodic work on the logs: it runs, and a disk that is slow about it holds up no timer."""

import threading

from klamm.testing import EmbeddedServer
from klamm_broker.log import LogManager


def test_a_slow_sync_holds_up_no_timer(monkeypatch):
    syncing, release, fired = threading.Event(), threading.Event(), threading.Event()

    def slow(self, now_ms):
        syncing.set()
        assert release.wait(20)

    monkeypatch.setattr(LogManager, "flush_due", slow)
    with EmbeddedServer(["broker.log.flush.scheduler.interval.ms=5"]) as server:
        try:
            assert syncing.wait(20)
            server.server.scheduler.schedule(1, fired.set)
            assert fired.wait(20)
        finally:
            release.set()


def test_work_that_fails_is_done_again(monkeypatch):
    runs = threading.Semaphore(0)

    def failing(self, now_ms):
        runs.release()
        raise OSError("on purpose")

    monkeypatch.setattr(LogManager, "checkpoint", failing)
    with EmbeddedServer(["broker.log.flush.offset.checkpoint.interval.ms=5"]):
        for _ in range(3):
            assert runs.acquire(timeout=20)
