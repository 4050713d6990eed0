"""Tests of an acceptor that cannot accept: its counts, also meanwhile, and its log lines."""

import errno
import logging
import socket
from types import SimpleNamespace

import pytest

from klamm import Delay
from klamm.network import acceptor
from klamm.network.balancer import LoadBalancer, spread
from klamm.runtime import Scheduler
from klamm.testing import ManualClock
from klamm_dispatch.assigners import RoundRobin
from klamm_dispatch.least_loaded import LeastLoaded
from tests.unit.network.fakes import connection_context, runtime

SECOND_NS = 1_000_000_000


class Listening:
    """A listening socket that accepts the given connections, and then blocks."""

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
    family = socket.AF_INET

    def setblocking(self, flag):
        pass

    def setsockopt(self, *option):
        pass

    def close(self):
        self.closed = True


class ClosedDoor:
    """A gate that makes every connection wait until it is opened."""

    is_open = False
    released = 0

    def admit(self, address):
        return None if self.is_open else Delay(600_000, "closed", pause_acceptor=True)

    def release(self, address):
        self.released += 1


class FakeInbox:
    """An inbox that accepts connections unless it is full."""

    full = False

    def __init__(self):
        self.taken = []

    def accept(self, connection):
        if self.full:
            return False
        self.taken.append(connection.socket)
        return True


class Processor:
    connection_count = 0
    age_ms = 0

    def __init__(self):
        self.inbox = FakeInbox()

    def turn_age_ns(self, now_ns):
        return self.age_ms * 1_000_000


class First:
    """An assigner that chooses the first processor."""

    rebalance_interval_ms = 0

    def assign(self, peer, loads):
        return 0


class AcceptorHarness:
    def __init__(self, *gates, assigner=None):
        self.clock = ManualClock()
        self.socket = Listening()
        self.processors = [Processor(), Processor()]
        self.scheduler = Scheduler(self.clock)
        balancer = LoadBalancer("a", assigner or First(), self.clock)
        balancer.processors = self.processors
        listener = runtime(
            context=connection_context("a").listener, gates=gates, clock=self.clock, scheduler=self.scheduler
        )
        self.acceptor = acceptor.Acceptor(self.socket, listener, balancer)

    @property
    def blocked_ns(self):
        return self.acceptor.blocked_ns_until(self.clock.monotonic_ns())

    @property
    def taken(self):
        return [connection for processor in self.processors for connection in processor.inbox.taken]


def test_a_pause_counts_as_blocked_while_it_lasts_and_resume_ends_it():
    gate = ClosedDoor()
    harness = AcceptorHarness(gate)
    harness.socket.outcomes = [Connection()]
    harness.acceptor.accept_some(8)
    harness.clock.advance_ms(5_000)
    harness.acceptor.accept_some(8)
    assert (harness.blocked_ns, harness.taken) == (5 * SECOND_NS, [])
    gate.is_open = True
    harness.acceptor.resume()
    harness.acceptor.accept_some(8)
    assert len(harness.taken) == 1
    harness.clock.advance_ms(5_000)
    assert harness.blocked_ns == 5 * SECOND_NS
    assert harness.acceptor.accept_rate() == pytest.approx(0.1)


def test_a_pause_ends_by_itself_and_counts_its_reason_once():
    gate = ClosedDoor()
    harness = AcceptorHarness(gate)
    harness.socket.outcomes = [Connection()]
    for _ in range(3):
        harness.acceptor.accept_some(8)
        assert harness.acceptor.paused_until_ns == harness.clock.monotonic_ns() + 600 * SECOND_NS
        harness.clock.advance_ms(600_000)
    gate.is_open = True
    harness.acceptor.accept_some(8)
    assert len(harness.taken) == 1
    assert harness.acceptor.outcomes.paused == {"closed": 1}


def test_no_more_than_the_limit_is_accepted_at_once():
    harness = AcceptorHarness()
    harness.socket.outcomes = [Connection() for _ in range(5)]
    for expected in (2, 4, 5, 5):
        harness.acceptor.accept_some(2)
        assert len(harness.taken) == expected


def test_pauses_for_lack_of_descriptors_are_counted_and_reported_once(caplog):
    caplog.set_level(logging.WARNING, "klamm.network")
    harness = AcceptorHarness()
    for _ in range(3):
        harness.socket.outcomes += [OSError(errno.EMFILE, "Too many open files"), Connection()]
        harness.acceptor.accept_some(8)
        harness.clock.advance_ms(100)
        harness.acceptor.accept_some(8)
    assert len(harness.taken) == 3
    assert harness.acceptor.descriptor_pauses == 3
    assert harness.blocked_ns == 3 * SECOND_NS // 10
    assert [record.getMessage() for record in caplog.records] == [
        "listener=a: accepting pauses: Too many open files",
        "listener=a: accepting again",
    ]
    caplog.clear()
    harness.clock.advance_ms(60_000)
    harness.scheduler.run_due()
    assert [record.getMessage() for record in caplog.records] == [
        "2 more in 60 s like the first, which was: listener=a: accepting pauses: Too many open files",
        "2 more in 60 s like the first, which was: listener=a: accepting again",
    ]


def test_connections_go_to_processors_with_room_and_wait_if_there_is_none():
    harness = AcceptorHarness()
    first, second = harness.processors
    first.inbox.full = True
    harness.socket.outcomes = [Connection(), Connection()]
    harness.acceptor.accept_some(1)
    assert len(second.inbox.taken) == 1
    second.inbox.full = True
    harness.acceptor.accept_some(8)
    assert harness.acceptor.paused_until_ns
    first.inbox.full = False
    harness.clock.advance_ms(5)
    harness.acceptor.accept_some(8)
    assert len(first.inbox.taken) == 1


def test_a_waiting_connection_is_released_at_the_stop_and_is_not_a_failure(caplog):
    caplog.set_level(logging.INFO, "klamm.network")
    gate = ClosedDoor()
    gate.is_open = True
    harness = AcceptorHarness(gate)
    for processor in harness.processors:
        processor.inbox.full = True
    connection = Connection()
    harness.socket.outcomes.append(connection)
    harness.acceptor.accept_some(8)
    harness.acceptor.stop()
    assert connection.closed
    assert gate.released == 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "listener=a peer=10.0.0.1:5000: refused: stopping")
    ]


def test_the_loop_of_an_acceptor_may_assign_connections_itself():
    harness = AcceptorHarness()
    placed = []
    harness.acceptor.run_in(lambda: None, lambda connection: placed.append(connection.socket) or True)
    harness.socket.outcomes = [Connection()]
    harness.acceptor.accept_some(8)
    assert len(placed) == 1
    assert harness.taken == []


@pytest.mark.parametrize("assigner", [First, RoundRobin, LeastLoaded])
def test_a_stuck_processor_gets_no_connection_if_another_works(assigner):
    harness = AcceptorHarness(assigner=assigner())
    stuck, free = harness.processors
    stuck.age_ms, free.age_ms = 100, 99
    harness.socket.outcomes = [Connection() for _ in range(4)]
    harness.acceptor.accept_some(4)
    assert (len(stuck.inbox.taken), len(free.inbox.taken)) == (0, 4)
    # The other processor has no room either, so the connection waits.
    free.inbox.full = True
    harness.socket.outcomes = [Connection()]
    harness.acceptor.accept_some(1)
    assert not stuck.inbox.taken
    assert harness.acceptor.paused_until_ns


@pytest.mark.parametrize("assigner", [First, RoundRobin, LeastLoaded])
def test_all_processors_get_connections_if_all_are_stuck(assigner):
    harness = AcceptorHarness(assigner=assigner())
    for processor in harness.processors:
        processor.age_ms = 5_000
    harness.socket.outcomes = [Connection() for _ in range(4)]
    harness.acceptor.accept_some(4)
    assert len(harness.taken) == 4


class Loaded:
    """A processor with channels. It records which channels it must give away."""

    def __init__(self, channels):
        self.channels = channels
        self.moves = []

    def migrate(self, channel, target):
        self.moves.append((channel, target))


def test_new_processors_get_a_fair_share_of_the_connections():
    old = [Loaded([SimpleNamespace(answers=None) for _ in range(count)]) for count in (9, 1)]
    new = [Loaded([]), Loaded([])]
    spread(old, new)
    assert [target for _, target in old[0].moves] == [*new, *new, *new]
    assert old[1].moves == []


def test_connections_that_cannot_move_stay_at_their_processor():
    free, bound = SimpleNamespace(answers=None), SimpleNamespace(answers=object())
    old, new = Loaded([bound, free, bound, bound]), Loaded([])
    spread([old], [new])
    assert old.moves == [(free, new)]


def test_a_stopped_acceptor_wakes_no_loop_until_it_has_one_again():
    woken, harness = [], AcceptorHarness()
    harness.acceptor.run_in(lambda: woken.append("first"), None)
    harness.acceptor.resume()
    harness.acceptor.stop()
    harness.acceptor.resume()
    assert woken == ["first"]
    harness.acceptor.reopen(Listening())
    harness.acceptor.run_in(lambda: woken.append("second"), None)
    harness.acceptor.resume()
    assert woken == ["first", "second"]
