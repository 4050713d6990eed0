"""Threads for what would hold a processor up."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("klamm.sasl")

Work = Callable[[], object]


class Workers:
    """A few threads that take work of each address in the order it came, and of the addresses in turns.

    So a client waits behind one check of each other address, however many those have brought. What waits is bounded by
    the connections, each of which waits for one check. The threads never keep the process from ending.
    """

    def __init__(self, name: str, count: int) -> None:
        self._changed = threading.Condition()
        # Only addresses with work, the next one first.
        self._queues: dict[str, deque[Work]] = {}
        self._waiting = 0
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{index}", daemon=True) for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work, address: str = "") -> None:
        """Have it called; what it raises is logged."""
        with self._changed:
            self._queues.setdefault(address, deque()).append(work)
            self._waiting += 1
            self._changed.notify()

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
                self._changed.wait()
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
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:
                log.exception("work failed")
