"""Tests of idle channels, and of the time from which on they are idle."""

import pytest

from klamm.network.channel import KafkaChannel
from klamm.network.expiry import ChannelExpiry
from klamm.network.receive import NetworkReceive
from klamm.network.selector import Selector
from klamm.testing import ManualClock
from tests.unit.network.fakes import FakePoller, FakeWaker, QuietTransport, connection_context, runtime

IDLE_MS = 600


class Idling:
    """A selector with one channel, and the search for idle channels, on the same clock."""

    def __init__(self):
        self.clock = ManualClock()
        made = runtime(clock=self.clock, connections_max_idle_ms=IDLE_MS)
        self.selector = Selector(FakePoller(), FakeWaker(), made)
        self.expiry = ChannelExpiry(made.limits, self.selector.channels, self.selector.setup.setting_up)
        context = connection_context()
        self.transport = QuietTransport()
        self.channel = KafkaChannel(7, self.transport, context, NetworkReceive(100), (), context.client_address)
        self.channel.admit(self.transport)
        self.selector.register(self.channel)

    def idle_after(self, ms):
        self.clock.advance_ms(ms)
        self.selector.poll(0)
        return self.expiry.idle(self.selector.now_ns)


@pytest.fixture
def idling():
    return Idling()


def test_an_answer_restarts_the_idle_clock(idling):
    idling.clock.advance_ms(IDLE_MS)
    idling.selector.poll(0)
    assert idling.selector.send(idling.channel, [b"an answer"])
    assert idling.idle_after(0) == []
    assert idling.idle_after(IDLE_MS - 1) == []
    assert idling.idle_after(IDLE_MS // 4) == [idling.channel]


def test_an_answer_that_waits_for_another_does_not_restart_the_idle_clock(idling):
    idling.transport.write = lambda chunks, more=False: 0
    assert not idling.selector.send(idling.channel, [b"an answer"])
    idling.clock.advance_ms(IDLE_MS)
    idling.selector.poll(0)
    assert not idling.selector.send(idling.channel, [b"another"])
    assert idling.idle_after(0) == [idling.channel]
