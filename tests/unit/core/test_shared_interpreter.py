"""Tests of large requests, which take turns. Meanwhile threads switch more often, and garbage collection pauses."""

import gc
import sys
import threading
from collections import deque

import pytest

from klamm import Provider, RequestObserver, hookimpl
from klamm.runtime.shared_interpreter import AT_ONCE, SWITCH_INTERVAL_S, SharedInterpreter, free_in_pieces
from klamm.testing import EmbeddedServer, RawClient
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


class Looking(RequestObserver):
    """An observer that records the settings of the interpreter at the end of each request."""

    found = []

    def completed(self, event):
        self.found.append((sys.getswitchinterval(), gc.get_threshold()))


class LookingPlugin:
    @hookimpl
    def klamm_request_observers(self):
        yield Provider("looking", f"{__name__}:Looking")


@pytest.fixture
def settings():
    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(0.005)
    gc.set_threshold(700, 10, 10)
    yield lambda: (sys.getswitchinterval(), gc.get_threshold())
    sys.setswitchinterval(before[0])
    gc.set_threshold(*before[1])


def tuned(*timers):
    """Return the settings of servers that own their process."""
    shared = SharedInterpreter()
    for one in timers:
        shared.tune_for(one.schedule)
    return shared


def test_settings_return_a_second_after_the_last_turn(settings):
    timers = Timers()
    normal, shared = settings(), tuned(timers)
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
    timers = Timers()
    normal, shared = settings(), tuned(timers)
    shared.switch_often(timers.schedule)
    assert settings()[0] == pytest.approx(SWITCH_INTERVAL_S, rel=0.05)
    timers.run()
    shared.switch_often(timers.schedule)
    timers.run()
    assert settings() != normal
    timers.run()
    assert settings() == normal
    assert not timers.due


def test_settings_return_without_the_timers_of_a_stopped_server(settings):
    stopped, timers = Timers(), Timers()
    normal, shared = settings(), tuned(stopped, timers)
    for one in (stopped, timers):
        with shared.turn(one.schedule, may_wait=False):
            pass
    timers.run()
    timers.run()
    assert settings() == normal
    stopped.run()
    assert settings() == normal


def test_settings_return_when_the_server_stops(settings):
    stopped, other = Timers(), Timers()
    normal, shared = settings(), tuned(stopped, other)
    with shared.turn(stopped.schedule, may_wait=False):
        pass
    shared.stopped(other.schedule)
    assert settings() != normal
    shared.stopped(stopped.schedule)
    assert settings() == normal
    shared.tune_for(other.schedule)
    with shared.turn(other.schedule, may_wait=False):
        assert settings() != normal
    other.run()
    other.run()
    assert settings() == normal


def test_a_server_in_another_programs_process_changes_no_settings(settings):
    normal, guest, host, shared = settings(), Timers(), Timers(), SharedInterpreter()
    shared.tune_for(host.schedule)
    with shared.turn(guest.schedule, may_wait=False):
        assert settings() == normal
    shared.switch_often(guest.schedule)
    assert settings() == normal
    assert not guest.due
    with shared.turn(host.schedule, may_wait=False):
        assert settings() != normal
    shared.stopped(host.schedule)
    assert settings() == normal
    with shared.turn(host.schedule, may_wait=False):
        assert settings() == normal, "it has stopped"


def test_settings_return_after_a_request_that_outlives_its_server(settings):
    timers = Timers()
    normal, shared = settings(), tuned(timers)
    with shared.turn(timers.schedule, may_wait=False):
        shared.stopped(timers.schedule)
        assert settings() != normal
    assert settings() == normal


@pytest.mark.parametrize("tune", [False, True])
def test_an_embedded_server_changes_the_interpreter_only_on_request(settings, tune):
    normal = settings()
    Looking.found.clear()
    names = [metadata.MetadataRequestTopic(name=f"t{number}") for number in range(500)]
    with EmbeddedServer(
        ['listeners.default.observers=["looking"]'], plugins=[LookingPlugin()], tune_interpreter=tune
    ) as server:
        with RawClient(server.address()) as client:
            client.call(metadata.MetadataRequest(names, allow_auto_topic_creation=False), 12)
            # The next request runs after the observer has seen the first.
            client.call(metadata.MetadataRequest([]), 12)
        assert [found != normal for found in Looking.found[:1]] == [tune]
    assert settings() == normal


@pytest.mark.parametrize("may_wait", [False, True])
def test_the_number_of_simultaneous_turns_is_limited(settings, may_wait):
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
        assert inside.acquire(timeout=60)
    assert not inside.acquire(timeout=0.05)
    with shared.turn(timers.schedule, may_wait=not may_wait):
        assert shared.running == AT_ONCE[may_wait] + 1
    for _ in threads:
        leave.release()
    for thread in threads:
        thread.join(60)
    assert max(most) == AT_ONCE[may_wait]


def test_garbage_is_collected_even_during_continuous_large_requests(settings):
    timers = Timers()
    shared = tuned(timers)
    before = gc.get_stats()[2]["collections"]
    for second in range(11):
        assert gc.get_stats()[2]["collections"] == before, second
        for _ in range(100):
            with shared.turn(timers.schedule, may_wait=False):
                pass
        timers.run()
    assert gc.get_stats()[2]["collections"] == before + 1


def test_parts_of_a_message_are_freed_unless_others_hold_them():
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
