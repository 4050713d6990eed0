"""A thread that works at leisure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from klamm.runtime import Clock, Workers

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
        self._lock = threading.Lock()
        # Only sources and users with work, the next ones first.
        self._sources: dict[str, dict[str, dict[Work, None]]] = {}
        self._waiting = 0
        self._workers = Workers(name, 1)

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return self._waiting

    def submit(self, work: Work, source: str, user: str) -> None:
        """Have it called; what it raises is logged."""
        with self._lock:
            self._sources.setdefault(source, {}).setdefault(user, {})[work] = None
            self._waiting += 1
        # Whose turn it is shows when the thread comes to it.
        self._workers.submit(self._do_next)

    def drop(self, work: Work, source: str, user: str) -> None:
        """Forget it, if it still waits."""
        with self._lock:
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
        self._stopping.set()
        self._workers.close(timeout_s)

    def _next(self) -> Work | None:
        with self._lock:
            if not self._sources:
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

    def _do_next(self) -> None:
        work = self._next()
        if work is None:
            # What this was for was dropped.
            return
        begun_ns = self._clock.monotonic_ns()
        try:
            work()
        finally:
            busy_ns = self._clock.monotonic_ns() - begun_ns
            rest_ns = min(MAX_REST_NS, busy_ns * (100 - self._percent) // self._percent)
            # The lane has nothing to do with what it has done while it rests.
            del work
            self._stopping.wait(rest_ns / 1e9)
