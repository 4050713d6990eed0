"""`PacedWorker`: a thread that is busy for only a share of the time. `CredentialChecks` gives it its work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from klamm.runtime import SYSTEM_THREADS, Clock, Threads, Workers

Work = Callable[[], object]

MAX_REST_NS: Final = 1_000_000_000


class PacedWorker:
    """One thread that rests after each piece of work, so that it is busy for at most `percent` of the time.

    A rest takes 1 s at most. Sources take turns, and within a source its users. So if one client guesses passwords,
    another client at the same address does not wait for all of them: in each turn of its source, another user of the
    address is next.

    The thread starts with the first work, and does not keep the process alive. It rests in `stopping.wait`.
    """

    def __init__(
        self,
        name: str,
        percent: int,
        clock: Clock,
        stopping: threading.Event | None = None,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._percent = percent
        self._clock = clock
        self._stopping = stopping or threading.Event()
        # Protects the waiting work, by source and user.
        self._lock = threading.Lock()
        # Only sources and users with waiting work are in it. The first ones are next.
        self._sources: dict[str, dict[str, dict[Work, None]]] = {}
        self._waiting = 0
        self._workers = Workers(name, 1, threads)

    @property
    def waiting(self) -> int:
        """Number of waiting pieces of work."""
        return self._waiting

    def submit(self, work: Work, source: str, user: str) -> None:
        """Queue a function, which the thread calls when its turn comes. Exceptions of the function are logged."""
        with self._lock:
            self._sources.setdefault(source, {}).setdefault(user, {})[work] = None
            self._waiting += 1
        # One call for each piece of work. `_do_next` chooses the piece when the thread gets there.
        self._workers.submit(self._do_next)

    def drop(self, work: Work, source: str, user: str) -> None:
        """Remove a piece of work if it still waits."""
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
        """End the thread after its present work, without a rest. Waiting work is dropped."""
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
            # The source and the user move to the end.
            if works:
                users[user] = works
            if users:
                self._sources[source] = users
            self._waiting -= 1
            return work

    def _do_next(self) -> None:
        work = self._next()
        if work is None:
            # The work was dropped meanwhile.
            return
        started_ns = self._clock.monotonic_ns()
        try:
            work()
        finally:
            busy_ns = self._clock.monotonic_ns() - started_ns
            rest_ns = min(MAX_REST_NS, busy_ns * (100 - self._percent) // self._percent)
            # Free the objects of the work before the rest.
            del work
            self._stopping.wait(rest_ns / 1e9)
