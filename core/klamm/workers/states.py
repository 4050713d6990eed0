"""The states of a worker as a table. What the table does not have raises."""

from __future__ import annotations

import enum
from typing import Final


class WorkerState(enum.Enum):
    """The state of one worker, by its number. WAITING has no process."""

    WAITING = enum.auto()
    STARTING = enum.auto()
    READY = enum.auto()
    STOPPING = enum.auto()


class WorkerEvent(enum.Enum):
    """An event in the life of a worker."""

    FORK = enum.auto()
    ANSWERS = enum.auto()
    STOP = enum.auto()
    EXIT = enum.auto()


TRANSITIONS: Final = {
    (WorkerState.WAITING, WorkerEvent.FORK): WorkerState.STARTING,
    (WorkerState.STARTING, WorkerEvent.ANSWERS): WorkerState.READY,
    (WorkerState.STARTING, WorkerEvent.STOP): WorkerState.STOPPING,
    (WorkerState.STARTING, WorkerEvent.EXIT): WorkerState.WAITING,
    (WorkerState.READY, WorkerEvent.STOP): WorkerState.STOPPING,
    (WorkerState.READY, WorkerEvent.EXIT): WorkerState.WAITING,
    # Its message was on its way when it was asked to stop.
    (WorkerState.STOPPING, WorkerEvent.ANSWERS): WorkerState.STOPPING,
    (WorkerState.STOPPING, WorkerEvent.EXIT): WorkerState.WAITING,
}


class IllegalTransitionError(RuntimeError):
    """An event that the state does not have: a defect of the supervisor."""


def next_state(state: WorkerState, event: WorkerEvent) -> WorkerState:
    """The state after an event. Raises IllegalTransitionError."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"a worker in {state.name} cannot take {event.name}") from None
