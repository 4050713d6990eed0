"""Tests of the queue of events: its limits, what happens at them, and that no thread waits for ever."""

import threading

import pytest

from klamm_spark.observer.event_queue import BLOCK, DROP, REFUSE, EventQueue


def test_entries_leave_in_order_and_count_until_they_are_written():
    queue = EventQueue(10, DROP)
    queue.put("a", 2, request=True)
    queue.put("b")
    assert queue.size == 3
    assert queue.take() == (["a", "b"], 0)
    assert queue.size == 3, "what is being written still takes its room"
    queue.done()
    assert queue.size == 0
    assert queue.take() == ([], 0)


def test_requests_are_dropped_at_the_capacity_and_other_events_at_twice_as_much():
    queue = EventQueue(2, DROP)
    for _ in range(4):
        queue.put("request", request=True)
    for _ in range(4):
        queue.put("failure")
    entries, dropped = queue.take()
    assert (entries, dropped) == (["request"] * 2 + ["failure"] * 2, 4)
    queue.done()
    queue.put("request", request=True)
    assert queue.take() == (["request"], 0)


def test_an_entry_larger_than_the_queue_is_accepted_if_the_queue_is_empty():
    queue = EventQueue(2, DROP)
    queue.put("many", 100, request=True)
    queue.put("one", request=True)
    assert queue.take() == (["many"], 1)


def test_with_on_full_refuse_the_last_requests_are_still_recorded():
    queue = EventQueue(2, REFUSE)
    assert not queue.full
    for _ in range(3):
        queue.put("request", request=True)
    assert queue.full
    assert queue.take() == (["request"] * 3, 0)


@pytest.mark.parametrize("release", ["done", "stop"])
def test_with_on_full_block_the_thread_waits_for_room_or_the_end(release):
    queue = EventQueue(1, BLOCK)
    queue.put("first", request=True)
    returned = threading.Event()

    def put():
        queue.put("second", request=True)
        returned.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not returned.wait(0.05)
    if release == "done":
        assert queue.take() == (["first"], 0)
        queue.done()
    else:
        queue.stop_blocking()
    assert returned.wait(60)
    thread.join()
    expected = (["second"], 0) if release == "done" else (["first"], 1)
    assert queue.take() == expected


def test_an_event_that_may_not_wait_is_dropped():
    queue = EventQueue(1, BLOCK)
    queue.put("first")
    queue.put("second")
    queue.put("third", may_wait=False)
    assert queue.take() == (["first", "second"], 1)


def test_the_writer_wakes_for_the_first_entry():
    filled = threading.Event()
    queue = EventQueue(10, DROP, filled)
    assert not filled.is_set()
    queue.put("a")
    assert filled.is_set()
    filled.clear()
    queue.put("b")
    assert not filled.is_set()
    queue.take()
    queue.put("c")
    assert filled.is_set()


def test_nothing_is_lost_or_doubled_between_threads():
    queue = EventQueue(1 << 30, DROP)
    threads = [
        threading.Thread(target=lambda n=n: [queue.put((n, i), request=True) for i in range(2000)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    taken = []
    while any(thread.is_alive() for thread in threads):
        taken += queue.take()[0]
        queue.done()
    taken += queue.take()[0]
    assert sorted(taken) == [(n, i) for n in range(4) for i in range(2000)]
    for number in range(4):
        assert [i for n, i in taken if n == number] == list(range(2000))
