"""`Threads`, which runs a server's work: on threads of the system, or in a simulation as steps in random order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol, TypeVar

_Poller = TypeVar("_Poller")


class Joinable(Protocol):
    """Work that has been started."""

    def join(self, timeout_s: float | None = None, /) -> None:
        """Wait until the work has ended."""


class Threads(Protocol):
    """Starts the work of a server. Any thread may call it."""

    def start(self, run: Callable[[], object], name: str) -> Joinable:
        """Run a function that ends by itself."""
        ...

    def start_loop(
        self,
        run: Callable[[], object],
        step: Callable[[], bool],
        name: str,
        due_ns: Callable[[], int | None] | None = None,
    ) -> Joinable | None:
        """Start a thread that calls `run`, a loop that ends when its owner stops it. Return the thread.

        A simulation calls `step` again and again instead, and returns None. A step never waits, and returns True if it
        had work. `due_ns` returns the time of the next work.
        """
        ...

    def watch(self, poller: _Poller) -> _Poller:
        """Return the poller that a loop must use: this one, or the one of a simulation."""
        ...

    def shuffle(self, items: list[Any], /) -> None:
        """Put the items into a random order."""
        ...


class SystemThreads:
    """Threads of the system, as daemons. The methods raise RuntimeError if the system cannot start a thread.

    With a `seed`, `shuffle` draws the same orders again.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = Random(seed)

    def start(self, run: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def start_loop(
        self,
        run: Callable[[], object],
        step: Callable[[], bool],  # noqa: ARG002
        name: str,
        due_ns: Callable[[], int | None] | None = None,  # noqa: ARG002
    ) -> threading.Thread:
        return self.start(run, name)

    def watch(self, poller: Any) -> Any:
        return poller

    def shuffle(self, items: list[Any], /) -> None:
        self._random.shuffle(items)


SYSTEM_THREADS: Final = SystemThreads()
"""The default: the threads of all servers outside simulations."""
