"""A thread that works at leisure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from klamm import Clock, stand_back

log = logging.getLogger("klamm.sasl")

Work = Callable[[], object]

MAX_REST_NS: Final = 1_000_000_000


class PacedLane:
    """One thread that after each piece of work rests until it was busy for no more than `percent` of the time.

    A rest takes 1 s at most. Sources take turns, and so do the users within each: who shares an address with somebody
    that guesses waits behind one check for each other user, and other addresses behind one of all of those.

    The thread begins with the first work, and never keeps the process from ending. `stopping.wait` is how it rests.
    """

    def __init__(self, name: str, percent: int, clock: Clock, stopping: threading.Event | None = None) -> None:
        self._percent = percent
        self._clock = clock
        self._stopping = stopping or threading.Event()
        self._changed = threading.Condition()
        # Only sources and users with work, the next ones first.
        self._sources: dict[str, dict[str, dict[Work, None]]] = {}
        self._waiting = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return self._waiting

    @property
    def started(self) -> bool:
        """Whether there has been any work."""
        return self._started

    def submit(self, work: Work, source: str, user: str) -> None:
        """Have it called; what it raises is logged."""
        with self._changed:
            self._sources.setdefault(source, {}).setdefault(user, {})[work] = None
            self._waiting += 1
            if not self._started and not self._stopping.is_set():
                self._started = True
                self._thread.start()
            self._changed.notify()

    def drop(self, work: Work, source: str, user: str) -> None:
        """Forget it, if it still waits."""
        with self._changed:
            users = self._sources.get(source, {})
            works = users.get(user, {})
            if work not in works:
                return
            del works[work]
            self._waiting -= 1
            if not works:
                del users[user]
            if not users:
                del self._sources[source]

    def close(self, timeout_s: float = 1.0) -> None:
        """End the thread after what it is doing, without a rest; what waits is forgotten."""
        with self._changed:
            self._stopping.set()
            self._changed.notify()
        if self._started:
            self._thread.join(timeout_s)

    def _next(self) -> Work | None:
        with self._changed:
            while not self._sources and not self._stopping.is_set():
                self._changed.wait()
            if self._stopping.is_set():
                return None
            source = next(iter(self._sources))
            users = self._sources.pop(source)
            user = next(iter(users))
            works = users.pop(user)
            work = next(iter(works))
            del works[work]
            # Behind all others.
            if works:
                users[user] = works
            if users:
                self._sources[source] = users
            self._waiting -= 1
            return work

    def _run(self) -> None:
        stand_back()
        while (work := self._next()) is not None:
            begun_ns = self._clock.monotonic_ns()
            try:
                work()
            except Exception:
                log.exception("work failed")
            busy_ns = self._clock.monotonic_ns() - begun_ns
            rest_ns = min(MAX_REST_NS, busy_ns * (100 - self._percent) // self._percent)
            # Whatever it belongs to shall not live on while the lane rests or waits.
            del work
            if self._stopping.wait(rest_ns / 1e9):
                return
