"""Tests of a processor's last checks before it sleeps: work that was handed over must not wait for the next wake-up."""

import pytest

from klamm.api.context import RequestContext
from klamm.network import reactor
from klamm.network.channel import ChannelState
from klamm.requests.pending import PendingRequest, RequestStage
from klamm.requests.request_channel import RequestChannel
from klamm.testing import ManualClock
from klamm_dispatch.schedulers import Fifo
from tests.unit.network.fakes import FakePoller, FakeWaker, connection_context, runtime
from tests.unit.network.test_channel import channel as quiet_channel


class Watching(FakePoller):
    """A selector that records for how long it was to sleep."""

    def __init__(self):
        super().__init__()
        self.timeouts = []

    def poll(self, timeout_s):
        self.timeouts.append(timeout_s)
        return super().poll(timeout_s)


@pytest.fixture
def poller():
    return Watching()


@pytest.fixture
def channel():
    return RequestChannel(Fifo(None, 1))


@pytest.fixture
def waker():
    return FakeWaker()


@pytest.fixture
def subject(monkeypatch, poller, waker, channel):
    monkeypatch.setattr(reactor, "make_poller", lambda kind: poller)
    monkeypatch.setattr(reactor, "Waker", lambda kind: waker)
    return reactor.Reactor(0, runtime(request_channel=channel))


def queued():
    context = RequestContext(connection_context(), None, 0, 0, 0, "client")
    context.responder = request = PendingRequest(context, None, None, b"", 0, None)
    request.stage = RequestStage.QUEUED
    return request


def test_a_processor_without_work_sleeps(subject, poller):
    subject.run_once()
    assert poller.timeouts[0] > 0


def test_a_processor_sleeps_while_the_queue_is_full(subject, poller):
    for _ in range(2):
        subject._enqueue(queued())
    subject.run_once()
    assert poller.timeouts[0] > 0


def test_a_processor_does_not_sleep_if_room_was_made_just_before(subject, poller, channel):
    for _ in range(2):
        subject._enqueue(queued())
    going_to_sleep = subject.inbox.going_to_sleep

    def a_handler_takes_a_request_first():
        channel.receive_request()
        subject.inbox.going_to_sleep = going_to_sleep
        going_to_sleep()

    subject.inbox.going_to_sleep = a_handler_takes_a_request_first
    subject.run_once()
    assert poller.timeouts == [0.0]
    subject.run_once()
    assert channel.size() == 1


class Accepting:
    """An acceptor that records whether connections are still being closed when it is called."""

    descriptor = 7
    paused_until_ns = 0

    def __init__(self, inbox):
        self.inbox = inbox
        self.closing = []

    def run_in(self, wake, place):
        pass

    def accept_some(self, limit):
        self.closing.append(self.inbox.is_closing_connections)


def test_a_listener_that_is_online_again_accepts_once_the_earlier_connections_are_closed(subject):
    acceptor = Accepting(subject.inbox)
    going_to_sleep = subject.inbox.going_to_sleep

    def the_listener_goes_offline_and_online_first():
        subject.inbox.close_connections()
        subject.setup.listen(acceptor)
        subject.inbox.going_to_sleep = going_to_sleep
        going_to_sleep()

    subject.inbox.going_to_sleep = the_listener_goes_offline_and_online_first
    subject.run_once()
    assert acceptor.closing == []
    assert not subject.inbox.accept(None)
    subject.run_once()
    assert acceptor.closing == [False]
    assert subject.inbox.accept(None)


@pytest.mark.parametrize("error", [ConnectionResetError("reset by peer"), ZeroDivisionError("on purpose")])
def test_a_failing_call_closes_only_its_channel(subject, error):
    failing, called = quiet_channel(), []

    def fail(_argument):
        raise error

    subject.inbox.call_soon(failing, fail, None)
    subject.inbox.call_soon(quiet_channel(), called.append, "after it")
    subject.run_once()
    assert failing.state is ChannelState.CLOSED
    assert called == ["after it"]


@pytest.mark.interpreted
def test_a_channel_that_closes_is_not_charged_for_the_others(monkeypatch, poller):
    clock = ManualClock()
    monkeypatch.setattr(reactor, "make_poller", lambda kind: poller)
    monkeypatch.setattr(reactor, "Waker", lambda kind: FakeWaker())
    subject = reactor.Reactor(0, runtime(clock=clock))
    busy, closing = channels = [quiet_channel(), quiet_channel()]

    def advance(channel):
        clock.advance_ms(40 if channel is busy else 2)
        if channel is closing:
            # A close happens like this, before the rest of its turn.
            subject.selector.charge(channel)

    monkeypatch.setattr(subject.lifecycle, "advance", advance)
    subject.selector.poll(0)
    subject.selector.completed_receives = channels
    subject._process_completed()
    assert (busy.busy_ns, closing.busy_ns) == (40_000_000, 2_000_000)


def test_a_loop_that_has_ended_is_not_woken(subject, waker):
    subject.drain(0, 0)
    assert (subject.drained(), waker.woken) == (True, 1)
    subject.end()
    subject.drain(0, 0)
    assert waker.woken == 1
