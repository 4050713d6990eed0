"""`Threads`: who runs a server's work: threads of the system, or steps that a simulation draws."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

_Poller = TypeVar("_Poller")


class Joinable(Protocol):
    """Work that has been started."""

    def join(self, timeout_s: float | None = None, /) -> None:
        """Wait for its end."""


class Threads(Protocol):
    """Starts work. Any thread may call it."""

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
        """Run a function that goes on until it is stopped, or return None: then `step` is called again and again.

        A step never waits; it returns True if there was something to do. `due_ns` is the moment of the next work.
        """
        ...

    def watch(self, poller: _Poller) -> _Poller:
        """Return the poller that a loop uses in place of the system's."""
        ...

    def shuffle(self, items: list[Any], /) -> None:
        """Put items into an order by chance."""
        ...


class SystemThreads:
    """Daemon threads. Raises RuntimeError if the system cannot start one."""

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
        random.shuffle(items)


SYSTEM_THREADS: Final = SystemThreads()
"""The threads of a server that is no simulation."""
