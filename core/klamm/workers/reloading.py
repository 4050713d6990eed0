"""`Reloading`: SIGHUP with several workers. One after the other they apply the changes that need no new process.

If other changes are left, the workers are replaced by new processes, one after the other. This module does no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from klamm.config.differences import LeftKeys
from klamm.runtime.clock import Clock

_ANSWER_WITHIN_NS: Final = 30_000_000_000


class ReloadActions(Protocol):
    """The actions of a reload."""

    def ready_numbers(self) -> Sequence[int]:
        """Return the numbers of the workers that serve clients."""

    def reload_worker(self, number: int) -> None:
        """Make a worker reload. `worker_reloaded` is called when it has answered."""

    def say(self, line: str) -> None:
        """Write a line on the terminal."""

    def replace_workers(self, left: Sequence[LeftKeys]) -> bool:
        """Replace all workers, because only new processes read these keys.

        Return False if a new parent would be needed too.
        """

    def reloaded(self) -> None:
        """Note that the reload has ended."""


class Reloading:
    """The reload of all workers. The parent's loop alone calls it.

    Only one reload runs at a time; a signal that arrives meanwhile starts another afterwards.
    """

    def __init__(self, actions: ReloadActions, clock: Clock) -> None:
        self._actions = actions
        self._clock = clock
        self._deadline_ns = 0
        self._waiting: deque[int] = deque()
        self._current: int | None = None
        self._said: Sequence[str] | None = None
        self._left: list[LeftKeys] = []
        self.under_way = False

    def start(self) -> None:
        """Make all workers reload, one after the other."""
        self.under_way = True
        self._said, self._left = None, []
        self._waiting = deque(self._actions.ready_numbers())
        self._next()

    def _next(self) -> None:
        self._current = self._waiting.popleft() if self._waiting else None
        if self._current is not None:
            self._deadline_ns = self._clock.monotonic_ns() + _ANSWER_WITHIN_NS
            self._actions.reload_worker(self._current)
            return
        if self._left and self._actions.replace_workers(self._left):
            return
        self.end()

    def next_due_ns(self) -> int | None:
        """Return the time at which `due` must be called; None if there is none."""
        return self._deadline_ns if self._current is not None else None

    def due(self) -> None:
        """Continue with the next worker if the current one has not answered within 30 s."""
        if self._current is not None and self._clock.monotonic_ns() >= self._deadline_ns:
            self._actions.say(f"reload: worker {self._current} does not answer")
            self._next()

    def worker_reloaded(self, number: int, lines: Sequence[str], left: Sequence[LeftKeys]) -> None:
        """Record the result of a worker's reload. Lines that all workers report are written once."""
        if number != self._current:
            return
        if self._said is None:
            self._said = lines
            for line in lines:
                self._actions.say(line)
        elif lines != self._said:
            for line in lines:
                self._actions.say(f"worker {number}: {line}")
        self._left += [keys for keys in left if keys not in self._left]
        self._next()

    def worker_ended(self, number: int) -> None:
        """Continue without a worker that has ended before its answer. Its successor has the new configuration."""
        if number == self._current:
            self._next()

    def end(self) -> None:
        """End the reload. Also called when the workers are replaced."""
        if self.under_way:
            self.under_way = False
            self._current = None
            self._actions.reloaded()
