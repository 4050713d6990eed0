"""Tests of the table of a listener's states: its transitions happen, and all others raise."""

import itertools

import pytest

from klamm.runtime import IllegalTransitionError
from klamm.server.listener_states import TRANSITIONS, ListenerEvent, ListenerState


def test_only_transitions_of_the_table_are_possible():
    for state, event in itertools.product(ListenerState, ListenerEvent):
        if (state, event) in TRANSITIONS:
            assert TRANSITIONS[state, event] in ListenerState
        else:
            with pytest.raises(IllegalTransitionError, match=f"{state.name} cannot take {event.name}"):
                _ = TRANSITIONS[state, event]


def test_a_listener_that_serves_stops_accepting_before_it_closes():
    assert (ListenerState.SERVING, ListenerEvent.CLOSE) not in TRANSITIONS
    assert not [event for state, event in TRANSITIONS if state is ListenerState.CLOSED]
