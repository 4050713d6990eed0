"""The assigner `round_robin` and the request scheduler `fifo`."""

import threading

from klamm import Address
from klamm_dispatch.assigners import RoundRobin
from klamm_dispatch.schedulers import Fifo

HERE = Address("127.0.0.1", 1)


def test_processors_take_turns_even_when_their_number_changes():
    assigner = RoundRobin()
    assert [assigner.assign(HERE, [0, 0, 0]) for _ in range(4)] == [0, 1, 2, 0]
    assert [assigner.assign(HERE, [0, 0]) for _ in range(3)] == [1, 0, 1]
    assert [assigner.assign(HERE, [0]) for _ in range(2)] == [0, 0]


def test_requests_come_in_order_and_no_more_than_the_capacity():
    queue = Fifo(None, 2)
    assert [queue.offer("a"), queue.offer("b"), queue.offer("c")] == [True, True, False]
    assert queue.size() == 2
    assert [queue.take(), queue.take()] == ["a", "b"]
    assert queue.offer("c")
    assert queue.take() == "c"


def test_wake_ends_one_take_each():
    queue = Fifo(None, 5)
    taken = []
    threads = [threading.Thread(target=lambda: taken.append(queue.take())) for _ in range(3)]
    for thread in threads:
        thread.start()
    queue.wake()
    queue.wake()
    queue.offer("request")
    for thread in threads:
        thread.join(10)
    assert sorted(taken, key=str) == [None, None, "request"]
