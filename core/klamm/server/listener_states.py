"""The states of a listener as a table. What the table does not have raises."""

from __future__ import annotations

import enum
from typing import Final


class ListenerState(enum.Enum):
    """A listener of a running server is SERVING, or DRAINING after a reload has removed it."""

    NEW = enum.auto()
    BOUND = enum.auto()
    OPEN = enum.auto()
    SERVING = enum.auto()
    DRAINING = enum.auto()
    CLOSED = enum.auto()


class ListenerEvent(enum.Enum):
    """A step in the life of a listener."""

    BIND = enum.auto()
    OPEN = enum.auto()
    START = enum.auto()
    STOP_ACCEPTING = enum.auto()
    CLOSE = enum.auto()


TRANSITIONS: Final = {
    (ListenerState.NEW, ListenerEvent.BIND): ListenerState.BOUND,
    (ListenerState.BOUND, ListenerEvent.OPEN): ListenerState.OPEN,
    (ListenerState.OPEN, ListenerEvent.START): ListenerState.SERVING,
    (ListenerState.SERVING, ListenerEvent.STOP_ACCEPTING): ListenerState.DRAINING,
    (ListenerState.DRAINING, ListenerEvent.CLOSE): ListenerState.CLOSED,
    # A start, or a reload that adds the listener, has failed.
    (ListenerState.NEW, ListenerEvent.CLOSE): ListenerState.CLOSED,
    (ListenerState.BOUND, ListenerEvent.CLOSE): ListenerState.CLOSED,
    (ListenerState.OPEN, ListenerEvent.CLOSE): ListenerState.CLOSED,
}


class IllegalTransitionError(RuntimeError):
    """A step that the state does not have: a defect of the server."""


def next_state(state: ListenerState, event: ListenerEvent) -> ListenerState:
    """Return the state after a step. Raises IllegalTransitionError."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"a listener that is {state.name} cannot take {event.name}") from None
