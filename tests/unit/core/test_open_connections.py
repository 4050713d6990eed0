"""Tests of lists of open connections: only one is made at a time, whichever part wants it."""

import threading

import pytest

from klamm.network.connection_looks import OneAtATime
from klamm.server.open_connections import OpenConnections
from klamm.testing import ManualClock
from klamm.workers.connections import WorkerConnections


class HeldListeners:
    """The listeners of a list that is not complete until the test releases it."""

    def __init__(self):
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __iter__(self):
        self.reached.set()
        assert self.go_on.wait(60)
        return iter(())

    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError(index)

    def ask(self, action, arguments, timeout_s):
        iter(self)
        return {}


@pytest.mark.parametrize(
    "connections_of", [lambda held: OpenConnections(held, ManualClock()), lambda held: WorkerConnections(held.ask)]
)
def test_a_second_list_waits_and_gives_up(connections_of):
    held = HeldListeners()
    connections = connections_of(held)
    first = threading.Thread(target=connections.look, args=(60.0,))
    first.start()
    assert held.reached.wait(60)
    with pytest.raises(TimeoutError, match="another look"):
        connections.look(0.01)
    held.go_on.set()
    first.join(60)
    assert connections.look(0.01) == {"connections": [], "unanswered": [], "listeners": []}


def test_a_failed_list_makes_room_for_the_next():
    looks = OneAtATime()
    with pytest.raises(ZeroDivisionError), looks.within(0):
        raise ZeroDivisionError
    with looks.within(0):
        pass
