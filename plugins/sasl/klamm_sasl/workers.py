"""Threads for what would hold a processor up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("klamm.sasl")


class Workers:
    """A few threads that take work in the order it came. They never keep the process from ending."""

    def __init__(self, name: str, count: int) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{index}", daemon=True) for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], object]) -> None:
        """Have it called; what it raises is logged."""
        self._queue.put(work)

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return self._queue.qsize()

    def close(self, timeout_s: float = 1.0) -> None:
        """End the threads after what they are doing; one that hangs longer than `timeout_s` is left to itself."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            if work is None:
                return
            try:
                work()
            except Exception:
                log.exception("work failed")
