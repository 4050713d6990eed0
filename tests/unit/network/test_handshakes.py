"""Tests of handshakes on threads: who may use a channel meanwhile, and the results and errors of steps."""

from collections import deque

import pytest

from klamm import HandshakeError, Interest
from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.poller import HANG_UP, READ, WRITE
from klamm.network.receive import NetworkReceive
from tests.unit.network.fakes import FakePoller, FakeWaker, QuietTransport, connection_context, make_selector, turn


class Shaking(QuietTransport):
    """A transport layer. Each step returns, calls or raises the next of `outcomes`."""

    def __init__(self, *outcomes):
        self.outcomes = deque(outcomes)
        self.closed = False

    @property
    def has_buffered_data(self):
        return False

    def handshake(self):
        outcome = self.outcomes.popleft()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome() if callable(outcome) else outcome

    def close(self):
        self.closed = True


class Crew:
    """Workers that work when the test says so."""

    def __init__(self):
        self.work = deque()

    def submit(self, work, address=""):
        self.work.append(work)

    def run(self):
        while self.work:
            self.work.popleft()()


@pytest.fixture
def poller():
    return FakePoller()


@pytest.fixture
def waker():
    return FakeWaker()


@pytest.fixture
def crew():
    return Crew()


@pytest.fixture
def selector(poller, waker, crew):
    return make_selector(poller, waker, crew)


def come(selector, poller, *outcomes, descriptor=1):
    """Connect a client that has sent the first bytes of its handshake."""
    context = connection_context()
    transport = Shaking(*outcomes)
    channel = KafkaChannel(descriptor, transport, context, NetworkReceive(1000), (), context.client_address)
    channel.admit(transport)
    selector.register(channel)
    poller.events[descriptor] = READ
    return channel


def test_a_handshake_starts_when_the_client_has_sent_bytes(selector, poller, crew):
    come(selector, poller, Interest.READ)
    poller.events.clear()
    turn(selector)
    assert not crew.work
    assert poller.watched[1] == READ


def test_a_handshake_continues_step_by_step(selector, poller, crew, waker):
    channel = come(selector, poller, Interest.READ, Interest.WRITE, Interest.NONE)
    turn(selector)
    assert 1 not in poller.watched
    poller.events[1] = READ | HANG_UP
    turn(selector)
    assert len(crew.work) == 1
    crew.run()
    assert waker.woken == 1
    for interest in (READ, WRITE):
        poller.events[1] = 0
        turn(selector)
        assert poller.watched[1] == interest
        poller.events[1] = interest
        turn(selector)
        crew.run()
    poller.events[1] = 0
    turn(selector)
    assert channel.state is ChannelState.AUTHENTICATE
    assert selector.completed_receives == [channel]
    assert poller.watched[1] == READ


def test_one_completed_handshake_continues_in_each_turn(selector, poller, crew):
    channels = [come(selector, poller, Interest.NONE, descriptor=number) for number in (1, 2)]
    turn(selector)
    crew.run()
    turn(selector)
    assert [channel.state for channel in channels] == [ChannelState.AUTHENTICATE, ChannelState.HANDSHAKE]
    turn(selector)
    assert [channel.state for channel in channels] == [ChannelState.AUTHENTICATE] * 2


def test_a_failed_handshake_is_reported(selector, poller, crew):
    error = HandshakeError("plain_text", "not TLS")
    channel = come(selector, poller, error)
    turn(selector)
    crew.run()
    turn(selector)
    assert selector.failed_handshakes == [(channel, error)]
    assert channel.close_reason == "not TLS"
    assert poller.watched[1] == 0


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), ZeroDivisionError("bug"), SystemExit(1)])
def test_an_error_of_a_step_closes_its_connection(selector, poller, crew, error):
    channel = come(selector, poller, error)
    turn(selector)
    crew.run()
    turn(selector)
    assert selector.disconnected == [channel]
    assert str(error) in channel.close_reason


def test_a_transport_is_not_closed_while_a_thread_has_it(selector, poller, crew):
    closed = []

    def step():
        selector.close(channel)
        closed.append(channel.transport.closed)
        return Interest.READ

    channel = come(selector, poller, step)
    turn(selector)
    crew.run()
    assert closed == [False]
    turn(selector)
    assert channel.transport.closed
    assert not selector.setup
    assert 1 not in poller.watched


def test_no_step_is_taken_for_a_closed_channel(selector, poller, crew):
    channel = come(selector, poller, Interest.READ)
    turn(selector)
    selector.close(channel)
    crew.run()
    assert channel.transport.outcomes == deque([Interest.READ])


def test_a_channel_that_is_closed_before_its_turn_is_closed_completely(selector, poller, crew):
    first, second = (come(selector, poller, Interest.READ, descriptor=number) for number in (1, 2))
    turn(selector)
    crew.run()
    turn(selector)
    selector.close(second)
    assert second.transport.closed
    assert not first.transport.closed
    poller.events.clear()
    turn(selector)
    assert not selector.setup


def test_draining_does_not_touch_channels_that_a_thread_uses(selector, poller, crew):
    channel = come(selector, poller, Interest.NONE)
    turn(selector)
    selector.stop_reading()
    assert 1 not in poller.watched
    crew.run()
    turn(selector)
    assert channel.state is ChannelState.AUTHENTICATE


@pytest.mark.parametrize("before", [True, False])
def test_a_running_handshake_is_closed_after_its_step_at_the_stop(selector, poller, crew, waker, before):
    channel = come(selector, poller, Interest.READ)
    turn(selector)
    if before:
        crew.run()
    woken = waker.woken
    selector.close_all()
    crew.run()
    assert channel.transport.closed
    assert waker.woken == woken
