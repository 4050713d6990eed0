"""Tests of shared syncs: one sync serves all waiting threads, and the number of syncs in a second is limited."""

import itertools
import threading
import time

import pytest

from klamm.runtime import SystemClock
from klamm.testing import ManualClock
from klamm_spark.observer.group_sync import GroupSync


class SlowDisk:
    """A disk that has, at the end of a sync, the bytes that were written before the sync began."""

    def __init__(self, fails=lambda: False):
        self.written, self.durable = set(), set()
        self.fails = fails

    def sync(self):
        taken = set(self.written)
        time.sleep(0.005)
        if self.fails():
            raise OSError(5, "broken")
        self.durable |= taken


def in_threads(count, work):
    """Run `work(number)` in this number of threads. Return the exceptions that they have raised."""
    raised = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_threads_share_syncs_and_return_when_theirs_is_durable():
    disk = SlowDisk()
    group = GroupSync(disk.sync, SystemClock(), 0)

    def work(number):
        for each in range(20):
            disk.written.add((number, each))
            group.wait()
            assert (number, each) in disk.durable

    assert in_threads(10, work) == []
    assert len(disk.durable) == 200
    assert 20 <= group.count < 100


def test_a_failed_sync_fails_for_all_threads_that_share_it_and_no_others():
    turns = itertools.count()
    disk = SlowDisk(fails=lambda: next(turns) % 2 == 1)
    group = GroupSync(disk.sync, SystemClock(), 0)
    outcomes = []

    def work(number):
        for each in range(10):
            disk.written.add((number, each))
            try:
                group.wait()
            except OSError as error:
                outcomes.append(error.strerror)
            else:
                assert (number, each) in disk.durable
                outcomes.append("durable")

    assert in_threads(6, work) == []
    assert len(outcomes) == 60
    assert set(outcomes) == {"broken", "durable"}


@pytest.mark.parametrize(("interval_ms", "slept_ms"), [(0, 0), (10, 990), (25, 2475)])
def test_syncs_start_at_least_an_interval_apart(interval_ms, slept_ms):
    clock, slept, started = ManualClock(), [], []

    def sleep(seconds):
        slept.append(seconds)
        clock.advance_ms(round(seconds * 1000))

    group = GroupSync(lambda: started.append(clock.monotonic_ns()), clock, interval_ms, sleep)
    for _ in range(100):
        group.wait()
    assert round(1000 * sum(slept)) == slept_ms
    assert all(after - before >= interval_ms * 1_000_000 for before, after in itertools.pairwise(started))
    # After a pause, the next sync starts at once.
    clock.advance_ms(interval_ms)
    slept.clear()
    group.wait()
    assert slept == []
