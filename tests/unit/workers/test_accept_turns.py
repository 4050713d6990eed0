import array
import random

import pytest

from klamm.network.listening_sockets import AcceptTurns
from tests.unit.network.test_acceptor import AcceptorHarness, Connection


class Server:
    """Workers that share a table. `connections` has the number of each worker's connections."""

    def __init__(self, count):
        self.connections = [0] * count
        self.table = memoryview(array.array("I", [0] * count))
        self.turns = [AcceptTurns(self.table, one, lambda one=one: self.connections[one]) for one in range(count)]
        for turns in self.turns:
            turns.is_over()


def test_connections_are_balanced_although_one_worker_always_accepts_first():
    server, rng = Server(4), random.Random(16)
    for _ in range(2000):
        if rng.random() < 0.2:
            closing = rng.randrange(4)
            server.connections[closing] = max(0, server.connections[closing] - 1)
        taker = next((one for one, turns in enumerate(server.turns) if not turns.is_over()), 0)
        server.connections[taker] += 1
    assert max(server.connections) - min(server.connections) <= 2 + max(server.connections) // 8


def test_a_single_worker_accepts_every_connection():
    server = Server(1)
    server.connections[0] = 1000
    assert not server.turns[0].is_over()
    server = Server(2)
    server.connections[0] = 1000
    assert server.turns[0].is_over()
    server.table[1] = 0
    assert not server.turns[0].is_over()


@pytest.fixture
def harness():
    return AcceptorHarness()


def test_an_acceptor_waits_for_a_millisecond_and_then_accepts_one_connection(harness):
    harness.acceptor._turns = AcceptTurns(memoryview(array.array("I", [1, 1])), 0, lambda: 100)
    harness.socket.outcomes = [Connection() for _ in range(3)]
    harness.acceptor.accept_some(4)
    assert harness.taken == []
    assert harness.acceptor.paused_until_ns == harness.clock.monotonic_ns() + 1_000_000
    harness.acceptor.accept_some(4)
    assert harness.taken == []
    harness.clock.advance_ms(1)
    harness.acceptor.accept_some(4)
    assert len(harness.taken) == 1
    # The acceptor waits for another worker, not for a limit.
    assert harness.blocked_ns == 0
