"""Tests of the two state tables of a channel: allowed transitions happen, and all others raise."""

import itertools

import pytest

from klamm.network.channel import (
    CHANNEL_TRANSITIONS,
    MUTE_TRANSITIONS,
    ChannelState,
    KafkaChannel,
    MuteEvent,
    MuteState,
    describe,
)
from klamm.network.receive import NetworkReceive
from klamm.runtime import IllegalTransitionError
from klamm.shared.principal import KafkaPrincipal
from klamm.wire.messages import heartbeat
from tests.unit.network.fakes import QuietTransport, connection_context
from tests.unit.requests.requests_harness import Line, handler, ping


def channel():
    return KafkaChannel(3, QuietTransport(), connection_context(), NetworkReceive(100), (), ("127.0.0.1", 1))


def a_request():
    request, _ = Line(handler(heartbeat, lambda request, context: context.later())).submit(ping())
    return request


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ChannelState, ChannelState)))
def test_channel_states_change_as_the_table_says_or_raise(before, after):
    subject = channel()
    subject.state = before
    if after in CHANNEL_TRANSITIONS[before]:
        subject.transition_to(after)
        assert subject.state is after
    else:
        with pytest.raises(IllegalTransitionError):
            subject.transition_to(after)
        assert subject.state is before


@pytest.mark.parametrize(("before", "event"), list(itertools.product(MuteState, MuteEvent)))
def test_mute_states_change_as_the_table_says_or_raise(before, event):
    subject = channel()
    subject.mute_state = before
    if (before, event) in MUTE_TRANSITIONS:
        subject.on_mute_event(event)
        assert subject.mute_state is MUTE_TRANSITIONS[before, event]
    else:
        with pytest.raises(IllegalTransitionError):
            subject.on_mute_event(event)


def test_every_state_can_be_closed_and_closed_is_final():
    assert all(ChannelState.CLOSED in CHANNEL_TRANSITIONS[state] for state in ChannelState if state.name != "CLOSED")
    assert not CHANNEL_TRANSITIONS[ChannelState.CLOSED]


def test_a_throttle_that_ends_before_the_response_is_sent_leaves_the_channel_muted_for_it():
    subject = channel()
    subject.request_received(a_request())
    subject.on_mute_event(MuteEvent.THROTTLE_STARTED)
    subject.on_mute_event(MuteEvent.THROTTLE_ENDED)
    subject.maybe_unmute()
    assert not subject.can_process
    subject.response_sent()
    assert subject.can_process


def test_a_response_that_is_sent_during_a_throttle_unmutes_only_at_its_end():
    subject = channel()
    subject.request_received(a_request())
    subject.on_mute_event(MuteEvent.THROTTLE_STARTED)
    subject.response_sent()
    assert not subject.can_process
    subject.on_mute_event(MuteEvent.THROTTLE_ENDED)
    subject.maybe_unmute()
    assert subject.can_process


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("alice", "User:alice"),
        ("CN=Jürgen Müller,O=x", "User:CN=Jürgen Müller,O=x"),
        ("eve\nlistener=x", "User:eve\\nlistener=x"),
        ("eve\u2028", "User:eve\\u2028"),
        ("\x1b[2J", "User:\\x1b[2J"),
    ],
)
def test_the_name_of_a_principal_cannot_start_a_line_of_the_log(name, written):
    subject = channel()
    subject.connection.principal = KafkaPrincipal(name)
    assert describe(subject) == f"listener=test connection_id=c-1 principal={written}"
