"""Tests of the use of closed connections by client. A fixed number of counters records it."""

import random

from klamm.metrics.client_usage import ClientKey, ClosedConnectionUsage

COUNTERS = 20


def client(number):
    return ClientKey("User:ANONYMOUS", "10.0.0.1", f"client-{number}")


def test_few_clients_are_counted_exactly():
    usage = ClosedConnectionUsage(COUNTERS)
    for _ in range(3):
        for number in range(COUNTERS):
            usage.add(client(number), number, 10)
    assert usage.read() == [(client(number), 3 * number, 30) for number in range(COUNTERS)]


def test_of_many_clients_those_with_a_large_share_are_counted_with_a_limited_error():
    chance = random.Random(7)
    usage, true_ns = ClosedConnectionUsage(COUNTERS), {}
    for _ in range(20_000):
        # Three clients use half of the time, and 5,000 others the rest.
        one = client(chance.randrange(3) if chance.random() < 0.5 else chance.randrange(3, 5_000))
        used_ns = chance.randrange(1, 2_000)
        true_ns[one] = true_ns.get(one, 0) + used_ns + used_ns // 2
        usage.add(one, used_ns, used_ns // 2)
    found = {one: processor_ns + handler_ns for one, processor_ns, handler_ns in usage.read()}
    assert len(found) == COUNTERS
    assert {client(number) for number in range(3)} <= set(found)
    largest_error_ns = sum(true_ns.values()) / COUNTERS
    for one, counted_ns in found.items():
        assert true_ns[one] <= counted_ns <= true_ns[one] + largest_error_ns
