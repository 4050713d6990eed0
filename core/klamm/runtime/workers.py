"""Threads for what would hold a processor up."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger("klamm.workers")

Work = Callable[[], object]

_NICER_BY: Final = 10


class Workers:
    """A few threads that take work of each address in the order it came, and of the addresses in turns.

    So a client waits behind one piece of work of each other address, however many those have brought. What waits is
    bounded by the connections, each of which waits for one. The threads start when there is work for them, stand back
    for all others of the process, and never keep it from ending.
    """

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._changed = threading.Condition()
        # Only addresses with work, the next one first.
        self._queues: dict[str, deque[Work]] = {}
        self._waiting = 0
        self._idle = 0
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def submit(self, work: Work, address: str = "") -> None:
        """Have it called; what it raises is logged."""
        with self._changed:
            self._queues.setdefault(address, deque()).append(work)
            self._waiting += 1
            if self._waiting > self._idle and len(self._threads) < self._count and not self._stopping:
                self._start()
            self._changed.notify()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system gives no thread now: those that are there do the work, or the next submit tries again.
            log.exception("%s: no further thread", self._name)
        else:
            self._threads.append(thread)

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return self._waiting

    def close(self, timeout_s: float = 1.0) -> None:
        """End the threads after what they are doing; one that hangs longer than `timeout_s` is left to itself."""
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
            address = next(iter(self._queues))
            queue = self._queues.pop(address)
            work = queue.popleft()
            if queue:
                # Behind all others.
                self._queues[address] = queue
            self._waiting -= 1
            return work

    def _run(self) -> None:
        _stand_back()
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:
                log.exception("work failed")
            if sys.platform == "linux":
                # Else a processor's thread that woke up on this core waits until all the work is done.
                os.sched_yield()


def _stand_back() -> None:
    """Give the calling thread a lower priority than the others of the process, where the system can do that."""
    if sys.platform == "linux":
        # There, priorities are of threads, not of processes.
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICER_BY))
