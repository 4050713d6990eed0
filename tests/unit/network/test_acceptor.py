"""An acceptor that cannot accept: what it counts of that, also while it lasts, and what it says."""

import errno
import logging
import queue

import pytest

from klamm import Delay
from klamm.metrics.connection_failures import ConnectionFailures
from klamm.network.acceptor import Acceptor
from klamm.network.admission import GateOutcomes
from klamm.network.balancer import LoadBalancer
from klamm.network.poller import READ
from klamm.runtime import Scheduler
from klamm.testing import ManualClock
from tests.waiting import wait_until

SECOND_NS = 1_000_000_000


class Listening:
    """A listening socket: gives what it is told to, and then nothing."""

    def __init__(self):
        self.outcomes = []

    def accept(self):
        if not self.outcomes:
            raise BlockingIOError
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome, ("10.0.0.1", 5000)

    def setblocking(self, flag):
        pass

    def fileno(self):
        return 3

    def close(self):
        pass


class Connection:
    closed = False

    def setblocking(self, flag):
        pass

    def setsockopt(self, *option):
        pass

    def close(self):
        self.closed = True


class Turns:
    """A poller that says once for each `turn` that somebody waits at the door."""

    def __init__(self):
        self.events = queue.Queue()

    def turn(self):
        self.events.put([(3, READ)])

    def register(self, descriptor, mask):
        pass

    def poll(self, timeout_s):
        return self.events.get()

    def close(self):
        pass


class Bell:
    """A waker."""

    descriptor = 4

    def __init__(self, turns):
        self.turns = turns

    def wake(self):
        self.turns.events.put([])

    def close(self):
        pass


class Pause:
    """An event that nobody sets: waiting for it takes time of the clock alone."""

    def __init__(self, clock):
        self.clock = clock

    def wait(self, timeout_s):
        self.clock.advance_ms(round(timeout_s * 1000))

    def set(self):
        pass


class ClosedDoor:
    """A gate that has everybody wait until it is opened."""

    is_open = False
    released = 0

    def admit(self, address):
        return None if self.is_open else Delay(600_000, "closed", pause_acceptor=True)

    def release(self, address):
        self.released += 1


class Processor:
    connection_count = 0
    stopped = False

    def __init__(self):
        self.taken = []

    def accept(self, sock, peer, gates, *, wait):
        if self.stopped:
            return False
        self.taken.append(sock)
        return True

    def stop_accepting(self):
        pass


class First:
    """Assigns to the first."""

    rebalance_interval_ms = 0

    def assign(self, peer, loads):
        return 0


class Door:
    def __init__(self, *gates):
        self.clock = ManualClock()
        self.socket = Listening()
        self.turns = Turns()
        self.processor = Processor()
        self.scheduler = Scheduler(self.clock)
        balancer = LoadBalancer("a", First(), self.clock)
        balancer.processors = [self.processor]
        self.acceptor = Acceptor(
            "a",
            self.socket,
            self.turns,
            Bell(self.turns),
            self.clock,
            self.scheduler,
            gates=gates,
            balancer=balancer,
            send_buffer_bytes=-1,
            receive_buffer_bytes=-1,
            failures=ConnectionFailures("a"),
            outcomes=GateOutcomes(),
        )

    @property
    def blocked_ns(self):
        return self.acceptor.blocked_ns_until(self.clock.monotonic_ns())


@pytest.fixture
def opened():
    doors = []

    def open_one(*gates):
        doors.append(Door(*gates))
        return doors[-1]

    yield open_one
    for door in doors:
        door.acceptor.stop()


def test_the_wait_it_is_in_counts_as_blocked(opened):
    gate = ClosedDoor()
    door = opened(gate)
    door.socket.outcomes = [Connection()]
    door.acceptor.start()
    door.turns.turn()
    wait_until(lambda: door.acceptor.blocked_ns_until(door.clock.monotonic_ns() + 1))
    door.clock.advance_ms(5_000)
    assert door.blocked_ns == 5 * SECOND_NS
    gate.is_open = True
    door.acceptor.resume()
    wait_until(lambda: door.acceptor.accepted)
    door.clock.advance_ms(5_000)
    assert door.blocked_ns == 5 * SECOND_NS
    assert door.acceptor.accept_rate() == pytest.approx(0.1)


def test_pauses_for_want_of_descriptors_are_counted_and_said_once(opened, caplog):
    caplog.set_level(logging.WARNING, "klamm.network")
    door = opened()
    door.acceptor._pause = Pause(door.clock)
    door.acceptor.start()
    for _ in range(3):
        door.socket.outcomes += [OSError(errno.EMFILE, "Too many open files"), Connection()]
        accepted = door.acceptor.accepted
        # The first look ends with the pause.
        door.turns.turn()
        door.turns.turn()
        wait_until(lambda before=accepted: door.acceptor.accepted == before + 1)
    assert door.acceptor.descriptor_pauses == 3
    assert door.blocked_ns == 3 * SECOND_NS // 10
    assert [record.getMessage() for record in caplog.records] == [
        "listener=a: accepting pauses: Too many open files",
        "listener=a: accepting again",
    ]
    caplog.clear()
    door.clock.advance_ms(60_000)
    door.scheduler.run_due()
    assert [record.getMessage() for record in caplog.records] == [
        "2 more in 60 s like the first, which was: listener=a: accepting pauses: Too many open files",
        "2 more in 60 s like the first, which was: listener=a: accepting again",
    ]


def test_who_comes_while_the_processors_stop_is_no_failure(opened, caplog):
    caplog.set_level(logging.INFO, "klamm.network")
    gate = ClosedDoor()
    gate.is_open = True
    door = opened(gate)
    door.processor.stopped = True
    connection = Connection()
    door.socket.outcomes.append(connection)
    door.acceptor.start()
    door.turns.turn()
    wait_until(lambda: connection.closed)
    assert gate.released == 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "listener=a peer=('10.0.0.1', 5000): refused: stopping")
    ]
