"""If the system can start no further threads, work is done later, and a stop does not wait for missing threads."""

import threading

import pytest

from klamm_broker.log.compaction_schedule import BackgroundCompaction
from klamm_broker.log.serial_worker import SerialWorker
from klamm_broker.topics.placement import NewTopic
from tests.unit.broker.broker_harness import BrokerHarness

WITHIN_S = 20


def refuse(_thread):
    raise RuntimeError("can't start new thread")


@pytest.fixture
def no_thread(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield patch


def test_serial_work_without_a_thread_is_done_with_the_next_work(no_thread):
    done = threading.Semaphore(0)
    worker = SerialWorker("test")
    worker.submit(done.release)
    worker.close()
    no_thread.undo()
    worker.submit(done.release)
    assert all(done.acquire(timeout=WITHIN_S) for _ in range(2))
    worker.close()


class Schedule:
    """A schedule that has a log to compact each time."""

    def __init__(self):
        self.runs = threading.Semaphore(0)

    def has_cleanable(self, now_ms):
        return True

    def clean(self, now_ms):
        self.runs.release()

    def stop(self):
        pass


def test_a_compaction_is_tried_again(no_thread):
    schedule = Schedule()
    compaction = BackgroundCompaction(schedule)
    with pytest.raises(RuntimeError):
        compaction.run(0)
    no_thread.undo()
    compaction.run(0)
    assert schedule.runs.acquire(timeout=WITHIN_S)
    compaction.stop()


def test_topics_are_created_together_with_later_ones(tmp_path, monkeypatch):
    harness = BrokerHarness(tmp_path)
    creation = harness.open().auto_creation
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        creation.create({"a": NewTopic(1, {})})
        creation.wait()
    creation.create({"b": NewTopic(1, {})})
    creation.wait()
    assert {topic.name for topic in harness.broker.topics.all()} == {"a", "b"}
    harness.broker.close()
