"""Large requests take turns, during which threads switch more often and nothing of theirs is examined."""

import gc
import sys
import threading
from collections import deque

import pytest

from klamm.runtime.shared_interpreter import AT_ONCE, SWITCH_INTERVAL_S, SharedInterpreter, free_in_pieces
from klamm.wire.messages import metadata, offset_commit


class Timers:
    """A scheduler whose timers are due when the test says so."""

    def __init__(self):
        self.due = deque()

    def schedule(self, delay_ms, call):
        self.due.append(call)

    def run(self):
        for _ in range(len(self.due)):
            self.due.popleft()()


@pytest.fixture
def settings():
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.005)
    gc.set_threshold(700, 10, 10)
    yield lambda: (sys.getswitchinterval(), gc.get_threshold())
    sys.setswitchinterval(before[0])
    gc.set_threshold(*before[1])


def test_settings_return_a_second_after_the_last_turn(settings):
    normal, timers, shared = settings(), Timers(), SharedInterpreter()
    with shared.turn(timers.schedule, may_wait=False):
        timers.run()
        interval_s, thresholds = settings()
        assert interval_s == pytest.approx(SWITCH_INTERVAL_S, rel=0.05)
        assert thresholds[:2] == normal[1][:2]
        assert thresholds[2] > 1_000_000
    with shared.turn(timers.schedule, may_wait=True):
        pass
    timers.run()
    assert settings() != normal
    timers.run()
    assert settings() == normal
    assert not timers.due


def test_threads_switch_often_for_a_second_without_a_turn(settings):
    normal, timers, shared = settings(), Timers(), SharedInterpreter()
    shared.switch_often(timers.schedule)
    assert settings()[0] == pytest.approx(SWITCH_INTERVAL_S, rel=0.05)
    timers.run()
    shared.switch_often(timers.schedule)
    timers.run()
    assert settings() != normal
    timers.run()
    assert settings() == normal
    assert not timers.due


def test_the_timers_of_a_stopped_server_are_not_needed(settings):
    normal, stopped, timers, shared = settings(), Timers(), Timers(), SharedInterpreter()
    for one in (stopped, timers):
        with shared.turn(one.schedule, may_wait=False):
            pass
    timers.run()
    timers.run()
    assert settings() == normal
    stopped.run()
    assert settings() == normal


def test_settings_return_when_the_server_stops(settings):
    normal, stopped, other, shared = settings(), Timers(), Timers(), SharedInterpreter()
    with shared.turn(stopped.schedule, may_wait=False):
        pass
    shared.stopped(other.schedule)
    assert settings() != normal
    shared.stopped(stopped.schedule)
    assert settings() == normal
    with shared.turn(other.schedule, may_wait=False):
        assert settings() != normal
    other.run()
    other.run()
    assert settings() == normal


@pytest.mark.parametrize("may_wait", [False, True])
def test_so_many_turns_at_once(settings, may_wait):
    timers, shared = Timers(), SharedInterpreter()
    inside, leave = threading.Semaphore(0), threading.Semaphore(0)
    most = []

    def work():
        with shared.turn(timers.schedule, may_wait=may_wait):
            most.append(shared.running)
            inside.release()
            leave.acquire()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(AT_ONCE[may_wait]):
        assert inside.acquire(timeout=10)
    assert not inside.acquire(timeout=0.05)
    with shared.turn(timers.schedule, may_wait=not may_wait):
        assert shared.running == AT_ONCE[may_wait] + 1
    for _ in threads:
        leave.release()
    for thread in threads:
        thread.join(10)
    assert max(most) == AT_ONCE[may_wait]


def test_garbage_is_collected_though_large_requests_never_stop(settings):
    timers, shared = Timers(), SharedInterpreter()
    before = gc.get_stats()[2]["collections"]
    for second in range(11):
        assert gc.get_stats()[2]["collections"] == before, second
        for _ in range(100):
            with shared.turn(timers.schedule, may_wait=False):
                pass
        timers.run()
    assert gc.get_stats()[2]["collections"] == before + 1


def test_pieces_are_freed_but_not_what_others_hold():
    topics = [offset_commit.OffsetCommitRequestTopic(f"t{n}", partitions=partitions(n)) for n in range(1000)]
    request = offset_commit.OffsetCommitRequest("g", topics=topics)
    kept, names = topics[500], metadata.MetadataRequest(None)
    messages = [request, names, None, b"bytes"]
    del topics
    free_in_pieces(messages)
    assert messages == []
    assert len(request.topics) == 1000
    assert kept.partitions == partitions(500)


def partitions(number):
    return [offset_commit.OffsetCommitRequestPartition(index, number) for index in range(number % 5)]
