"""Tests of the order in which channels are read: those that are READY at once, those in setup in turns."""

from collections import deque

import pytest

from klamm.network.channel import ChannelState, KafkaChannel
from klamm.network.poller import HANG_UP, READ
from klamm.network.receive import NetworkReceive
from tests.unit.network.fakes import FakePoller, FakeWaker, QuietTransport, connection_context, make_selector, turn

FRAME = b"\0\0\0\4abcd"


class Bytes(QuietTransport):
    """Bytes that have arrived and were not read."""

    def __init__(self, *pieces):
        self.pieces = deque(pieces)

    def read_into(self, buffer):
        if not self.pieces:
            return 0
        piece = self.pieces.popleft()
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.fixture
def poller():
    return FakePoller()


@pytest.fixture
def selector(poller):
    return make_selector(poller, FakeWaker())


def join(selector, descriptor, state, *pieces):
    context = connection_context()
    channel = KafkaChannel(descriptor, Bytes(*pieces), context, NetworkReceive(1000), (), context.client_address)
    channel.admit(channel.transport)
    selector.register(channel)
    if state is ChannelState.READY:
        channel.transition_to(ChannelState.READY)
    selector.completed_receives.clear()
    return channel


def received(selector):
    channels, selector.completed_receives = selector.completed_receives, []
    return channels


def test_channels_not_set_up_are_read_one_a_turn_and_others_at_once(selector, poller):
    not_set_up = [join(selector, number, ChannelState.AUTHENTICATE, FRAME) for number in (1, 2)]
    ready = [join(selector, number, ChannelState.READY, FRAME) for number in (3, 4)]
    poller.events = dict.fromkeys((1, 2, 3, 4), READ)
    turn(selector)
    assert received(selector) == [*ready, not_set_up[0]]
    poller.events = {1: 0, 2: READ}
    turn(selector)
    assert received(selector) == [not_set_up[1]]
    assert poller.watched == dict.fromkeys((FakeWaker.descriptor, 1, 2, 3, 4), READ)


def test_a_channel_that_waits_for_a_turn_is_not_polled(selector, poller):
    for number in (1, 2, 3):
        join(selector, number, ChannelState.AUTHENTICATE, FRAME)
    poller.events = dict.fromkeys((1, 2, 3), READ)
    turn(selector)
    assert poller.poll(0) == [(1, READ)]


def test_bytes_sent_before_the_close_of_a_channel_in_setup_are_read(selector, poller):
    first, second = (join(selector, number, ChannelState.AUTHENTICATE, FRAME) for number in (1, 2))
    poller.events = dict.fromkeys((1, 2), READ)
    turn(selector)
    poller.events = {2: HANG_UP}
    turn(selector)
    assert received(selector) == [first, second]
    assert selector.disconnected == []
    turn(selector)
    assert selector.disconnected == [second]


def test_a_channel_that_becomes_ready_while_it_waits_is_read(selector, poller):
    _first, second = (join(selector, number, ChannelState.AUTHENTICATE, FRAME) for number in (1, 2))
    poller.events = dict.fromkeys((1, 2), READ)
    turn(selector)
    second.transition_to(ChannelState.READY)
    poller.events = {}
    turn(selector)
    assert received(selector)[-1] is second
    assert poller.watched[2] == READ


class Hoarded(Bytes):
    """A transport that buffers unread bytes of the socket, as TLS does."""

    @property
    def has_buffered_data(self):
        return bool(self.pieces)


@pytest.mark.parametrize("state", [ChannelState.AUTHENTICATE, ChannelState.READY])
@pytest.mark.parametrize("split_at", [0, 3])
def test_complete_frames_before_an_invalid_size_are_handled(selector, poller, state, split_at):
    channel = join(selector, 1, state)
    data = FRAME + b"\xff\xff\xff\xff"
    channel.admit(Hoarded(*filter(None, (data[:split_at], data[split_at:]))))
    poller.events = {1: READ}
    for _ in range(3):
        turn(selector)
        poller.events = {}
    assert [bytes(frame) for frame in channel.receive.frames] == [b"abcd"]
    assert received(selector) == [channel]
    # A channel that is READY ends after earlier requests are answered.
    is_ready = state is ChannelState.READY
    assert channel.state is (ChannelState.FINISHING if is_ready else state)
    assert selector.disconnected == ([] if is_ready else [channel])
