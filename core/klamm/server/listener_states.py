"""The states of a listener, as a table of transitions."""

from __future__ import annotations

import enum
from typing import Final

from klamm.runtime.transitions import Transitions


class ListenerState(enum.Enum):
    """The state of a listener. In a running server it is SERVING, or DRAINING after a reload has removed it.

    ```
    NEW ─bind─► BOUND ─open─► OPEN ─start─► SERVING ─stop accepting─► DRAINING ─close─► CLOSED
     └────────────┴────────────┴───close: the start, or the reload that adds it, has failed──┘
    ```
    """

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


TRANSITIONS: Final = Transitions(
    "a listener",
    {
        (ListenerState.NEW, ListenerEvent.BIND): ListenerState.BOUND,
        (ListenerState.BOUND, ListenerEvent.OPEN): ListenerState.OPEN,
        (ListenerState.OPEN, ListenerEvent.START): ListenerState.SERVING,
        (ListenerState.SERVING, ListenerEvent.STOP_ACCEPTING): ListenerState.DRAINING,
        (ListenerState.DRAINING, ListenerEvent.CLOSE): ListenerState.CLOSED,
        (ListenerState.NEW, ListenerEvent.CLOSE): ListenerState.CLOSED,
        (ListenerState.BOUND, ListenerEvent.CLOSE): ListenerState.CLOSED,
        (ListenerState.OPEN, ListenerEvent.CLOSE): ListenerState.CLOSED,
    },
)
