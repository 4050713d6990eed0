"""The request scheduler `fifo`."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from klamm import RequestContext, RequestScheduler


class Fifo(RequestScheduler):
    """First in, first out.

    `SimpleQueue` is more than twice as fast as `Queue`. The bound is checked before the put, so processors that offer
    at the same instant may exceed it by one each.
    """

    def __init__(self, settings: Any, capacity: int) -> None:
        super().__init__(settings, capacity)
        self._queue: SimpleQueue[RequestContext | None] = SimpleQueue()

    def offer(self, request: RequestContext) -> bool:
        if self._queue.qsize() >= self.capacity:
            return False
        self._queue.put(request)
        return True

    def take(self) -> RequestContext | None:
        return self._queue.get()

    def wake(self) -> None:
        self._queue.put(None)

    def size(self) -> int:
        return self._queue.qsize()
