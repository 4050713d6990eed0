"""`SerialWorker`: a thread that runs one function after the other, for work that would delay the caller's thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from klamm.runtime import SYSTEM_THREADS, Joinable, Threads

log = logging.getLogger("klamm.broker.log")


class SerialWorker:
    """A thread for work that any thread may submit. It starts with the first work; `close` ends it after all work is
    done.
    """

    def __init__(self, name: str, threads: Threads = SYSTEM_THREADS) -> None:
        self._name = name
        self._start_loop = threads.start_loop
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Protects the thread, which the first work starts and which ends once.
        self._lock = threading.Lock()
        self._thread: Joinable | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Queue a function. Its exceptions are logged."""
        with self._lock:
            self._work.put(work)
            if self._thread is None:
                try:
                    self._thread = self._start_loop(self._run, self._step, self._name)
                except RuntimeError:
                    log.exception("%s: cannot start a thread; the next work tries again", self._name)

    def close(self) -> None:
        """Wait for the submitted work."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._work.put(None)
        if thread is not None:
            thread.join()

    def _step(self) -> bool:
        if self._work.empty():
            return False
        work = self._work.get()
        if work is not None:
            self._do(work)
        return True

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("%s: %r failed", self._name, work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            self._do(work)
            # This thread may wait a long time for the next work, and work may hold a large request.
            del work
