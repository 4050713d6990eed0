"""Tests of `DecisionSlots`: sources and their requests take turns, and a source has at most half of the slots."""

import time

from klamm.server.decision_slots import DecisionSlots


def started(slots, count):
    """Free the slot of the latest decision, again and again. Return the decisions that start."""
    found = []
    for _ in range(count):
        request, key = slots.next()
        found.append(f"{request}{key}")
        slots.free(request[0])
    return found


def full(waiting):
    """Return slots with waiting requests.

    A source `x` has filled and freed them. Requests are named `a1` for source `a`.
    """
    slots = DecisionSlots(1, 100)
    assert slots.take("x")
    for request, count in waiting.items():
        for number in range(count):
            assert slots.wait(request[0], request, f".{number}")
    assert slots.next() is None
    slots.free("x")
    return slots


def test_sources_take_turns():
    slots = full({"a1": 3, "b1": 2})
    assert started(slots, 5) == ["a1.0", "b1.0", "a1.1", "b1.1", "a1.2"]
    assert (slots.waiting, slots.next()) == (0, None)


def test_requests_of_a_source_take_turns():
    slots = full({"a1": 3, "a2": 1, "b1": 1})
    assert started(slots, 5) == ["a1.0", "b1.0", "a2.0", "a1.1", "a1.2"]


def test_a_source_with_half_of_the_slots_gets_no_further_slot():
    slots = DecisionSlots(4, 100)
    assert [slots.take("a"), slots.take("a"), slots.take("a")] == [True, True, False]
    slots.wait("a", "a1", ".0")
    slots.wait("b", "b1", ".0")
    assert slots.next() == ("b1", ".0")
    assert slots.next() is None
    slots.free("a")
    assert slots.next() == ("a1", ".0")


def test_a_dropped_request_makes_room():
    slots = DecisionSlots(1, 4)
    assert [slots.wait("a", "a1", number) for number in range(3)] == [True, True, False]
    assert slots.drop("a", "a1") == 2
    assert slots.drop("a", "a1") == 0
    assert slots.waiting == 0
    assert slots.wait("a", "a2", 0)
    assert slots.drop_all() == ["a2"]
    assert slots.next() is None


def cost(sources, requests):
    """Return the seconds of processor time for starting the decision of each of these requests."""
    slots = DecisionSlots(1, 10**9)
    for source in range(sources):
        for request in range(requests):
            slots.wait(str(source), request, ".0")
    began = time.thread_time()
    for count in range(sources * requests):
        slots.next()
        slots.free(str(count % sources))
    took_s = time.thread_time() - began
    assert slots.waiting == 0
    return took_s


def test_the_cost_of_a_waiting_request_is_independent_of_their_number():
    few = sum(cost(1, 1_000) for _ in range(60))
    assert min(cost(1, 60_000) for _ in range(2)) < 4 * few
    assert min(cost(60_000, 1) for _ in range(2)) < 4 * few
