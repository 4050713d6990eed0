"""Tests of the paced worker: turns of addresses, pauses, dropped work, and its end."""

import threading

import pytest

from klamm.testing import ManualClock
from klamm_sasl.paced_worker import PacedWorker


class Rests(threading.Event):
    """Records how long each wait is, and lets no time pass."""

    def __init__(self):
        super().__init__()
        self.noted_s = []
        self.rested = threading.Semaphore(0)

    def wait(self, timeout=None):
        self.noted_s.append(timeout)
        self.rested.release()
        return self.is_set()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def rests():
    return Rests()


@pytest.fixture
def held(clock, rests):
    """Return a worker that is busy until `release` is set."""
    lane, release, busy = PacedWorker("test", 2, clock, rests), threading.Event(), threading.Event()

    def hold():
        busy.set()
        release.wait(60)

    lane.submit(hold, "first", "user")
    assert busy.wait(60)
    yield lane, release
    release.set()
    lane.close()


def has_thread(lane):
    return any(thread.is_alive() for thread in lane._workers._threads)


def finish(lane, release, rests, number):
    """Let the worker finish this number of tasks, after the one that holds it."""
    release.set()
    for _ in range(number + 1):
        assert rests.rested.acquire(timeout=60)
    assert lane.waiting == 0


def test_addresses_take_turns_and_the_users_of_each_address_too(held, rests):
    lane, release = held
    done = []
    for name in ("a-x-0", "a-x-1", "a-x-2", "a-y-0", "a-z-0", "b-x-0", "b-x-1", "c-x-0"):
        source, user, _ = name.split("-")
        lane.submit(lambda name=name: done.append(name), source, user)
    assert lane.waiting == 8
    finish(lane, release, rests, 8)
    assert done == ["a-x-0", "b-x-0", "c-x-0", "a-y-0", "b-x-1", "a-z-0", "a-x-1", "a-x-2"]


def test_dropped_work_is_never_done(held, rests):
    lane, release = held
    done = []
    works = {name: lambda name=name: done.append(name) for name in ("a-x", "a-x again", "a-y", "b-x")}
    for name, work in works.items():
        lane.submit(work, *name.split()[0].split("-"))
    lane.drop(works["a-x"], "a", "x")
    lane.drop(works["a-x"], "a", "x")
    lane.drop(works["b-x"], "b", "x")
    lane.drop(print, "nowhere", "x")
    assert lane.waiting == 2
    finish(lane, release, rests, 2)
    lane.drop(works["a-y"], "a", "y")
    assert done == ["a-x again", "a-y"]
    assert lane.waiting == 0
    assert lane._sources == {}


@pytest.mark.parametrize(
    ("percent", "busy_ms", "rest_s"), [(2, 2, 0.098), (50, 2, 0.002), (99, 99, 0.001), (1, 50, 1.0), (2, 0, 0.0)]
)
def test_the_pause_is_in_proportion_to_the_check_and_at_most_a_second(clock, rests, percent, busy_ms, rest_s):
    lane = PacedWorker("test", percent, clock, rests)
    for _ in range(2):
        lane.submit(lambda: clock.advance_ms(busy_ms), "a", "x")
        assert rests.rested.acquire(timeout=60)
    lane.close()
    assert rests.noted_s == pytest.approx([rest_s] * 2)


def test_failing_work_is_logged_and_paced(held, rests, clock, caplog):
    lane, release = held

    def fail():
        clock.advance_ms(1)
        raise ZeroDivisionError("on purpose")

    lane.submit(fail, "a", "x")
    lane.submit(lambda: None, "a", "x")
    finish(lane, release, rests, 2)
    assert "work failed" in caplog.text
    assert rests.noted_s == pytest.approx([0, 0.049, 0])


def test_the_thread_starts_with_the_first_work(clock):
    lane = PacedWorker("test", 2, clock)
    assert not has_thread(lane)
    lane.close()
    lane.submit(lambda: None, "a", "x")
    assert not has_thread(lane), "nor after the end"


def test_closing_interrupts_a_pause_and_drops_waiting_work(clock):
    resting, done = threading.Event(), []

    class LongRest(threading.Event):
        def wait(self, timeout=None):
            resting.set()
            return super().wait(60)

    lane = PacedWorker("test", 2, clock, LongRest())
    for _ in range(2):
        lane.submit(lambda: done.append(1), "a", "x")
    assert resting.wait(60)
    lane.close(10)
    assert not has_thread(lane)
    assert done == [1]


def test_a_thread_that_waits_for_work_ends(clock, rests):
    lane = PacedWorker("test", 2, clock, rests)
    lane.submit(lambda: None, "a", "x")
    assert rests.rested.acquire(timeout=60)
    lane.close(10)
    assert not has_thread(lane)
