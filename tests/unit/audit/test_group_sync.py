"""One sync for all threads that wait, and only so many in a second."""

import itertools
import threading
import time

import pytest

from klamm.runtime import SystemClock
from klamm.testing import ManualClock
from klamm_spark.observer.group_sync import GroupSync


class SlowDisk:
    """What is written at the start of a sync is on the disk at its end."""

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
    """Run `work(number)` in so many threads; what they have raised."""
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


def test_a_sync_that_fails_fails_for_all_that_share_it_and_for_no_other():
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
def test_syncs_are_so_far_apart(interval_ms, slept_ms):
    clock, slept, started = ManualClock(), [], []

    def sleep(seconds):
        slept.append(seconds)
        clock.advance_ms(round(seconds * 1000))

    group = GroupSync(lambda: started.append(clock.monotonic_ns()), clock, interval_ms, sleep)
    for _ in range(100):
        group.wait()
    assert round(1000 * sum(slept)) == slept_ms
    assert all(after - before >= interval_ms * 1_000_000 for before, after in itertools.pairwise(started))
    # After a pause, the next one does not wait.
    clock.advance_ms(interval_ms)
    slept.clear()
    group.wait()
    assert slept == []
