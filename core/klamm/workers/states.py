"""The states of a worker, as a table of transitions."""

from __future__ import annotations

import enum
from typing import Final

from klamm.runtime.transitions import Transitions


class WorkerState(enum.Enum):
    """The state of a worker. A worker that is WAITING has no process.

    ```
    WAITING ─fork─► STARTING ─answers─► READY ─stop─► STOPPING
       ▲               │ └──────────stop─────────────────▲ │
       └─────exit──────┴──────────────────┴────────────────┘
    ```
    """

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


TRANSITIONS: Final = Transitions(
    "a worker",
    {
        (WorkerState.WAITING, WorkerEvent.FORK): WorkerState.STARTING,
        (WorkerState.STARTING, WorkerEvent.ANSWERS): WorkerState.READY,
        (WorkerState.STARTING, WorkerEvent.STOP): WorkerState.STOPPING,
        (WorkerState.STARTING, WorkerEvent.EXIT): WorkerState.WAITING,
        (WorkerState.READY, WorkerEvent.STOP): WorkerState.STOPPING,
        (WorkerState.READY, WorkerEvent.EXIT): WorkerState.WAITING,
        # The worker sent its message before it received the request to stop.
        (WorkerState.STOPPING, WorkerEvent.ANSWERS): WorkerState.STOPPING,
        (WorkerState.STOPPING, WorkerEvent.EXIT): WorkerState.WAITING,
    },
)
