"""`Workers`: threads for work that would block a processor."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from klamm.runtime.platform.processes import give_way, lower_priority
from klamm.runtime.threads import SYSTEM_THREADS, Joinable, Threads

log = logging.getLogger("klamm.workers")

Work = Callable[[], object]


class Workers:
    """A few threads that do the work of each source in order, and take turns between sources.

    A source is e.g. the address of a client. So a client waits for at most one piece of work of each other source, even
    if a source has submitted many. The queue has at most one piece of work for each connection, because a connection
    waits for its work. The threads start when there is work, have a lower priority than the process's other threads,
    and are daemons.
    """

    def __init__(self, name: str, count: int, threads: Threads = SYSTEM_THREADS) -> None:
        self._start_loop = threads.start_loop
        self._name = name
        self._count = count
        # Protects the queues, the counts of work and threads, and `_stopping`.
        self._changed = threading.Condition()
        # The sources that have work, and their work. The first source is the next to be served.
        self._queues: dict[str, deque[Work]] = {}
        self._waiting = 0
        self._idle = 0
        self._stopping = False
        self._threads: list[Joinable] = []

    def submit(self, work: Work, source: str = "") -> None:
        """Call `work` on one of the threads. Its exceptions are logged. Any thread may call this."""
        with self._changed:
            self._queues.setdefault(source, deque()).append(work)
            self._waiting += 1
            if self._waiting > self._idle and len(self._threads) < self._count and not self._stopping:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        try:
            thread = self._start_loop(self._run, self._step, f"{self._name}-{len(self._threads)}")
        except RuntimeError:
            # The system cannot create a thread. The other threads do the work, or the next `submit` tries again.
            log.exception("%s: cannot start another thread", self._name)
        else:
            if thread is not None:
                self._threads.append(thread)

    @property
    def waiting(self) -> int:
        """Return the number of pieces of work in the queue."""
        return self._waiting

    def close(self, timeout_s: float = 1.0) -> None:
        """End the threads after their current work, and wait up to `timeout_s` seconds for them."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)

    def _next(self) -> Work | None:
        with self._changed:
            while not self._queues and not self._stopping:
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            if self._stopping:
                return None
            source = next(iter(self._queues))
            queue = self._queues.pop(source)
            work = queue.popleft()
            if queue:
                # The source becomes the last one.
                self._queues[source] = queue
            self._waiting -= 1
            return work

    def _step(self) -> bool:
        work = self._next() if self._queues else None
        if work is not None:
            _do(work)
        return work is not None

    def _run(self) -> None:
        lower_priority()
        while (work := self._next()) is not None:
            _do(work)
            # Removed now, because this thread may wait for a long time and the work may hold a large request.
            del work
            # Without this, a processor thread that wakes up on this core would wait until the queue is empty.
            give_way()


def _do(work: Work) -> None:
    try:
        work()
    except Exception:
        log.exception("work failed")
