"""The request scheduler `fifo`: processor threads call `offer`, request handlers call `take`."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

from klamm import RequestContext
from klamm.dispatch import RequestScheduler


class Fifo(RequestScheduler):
    """The scheduler `fifo`: first in, first out.

    `SimpleQueue` is more than twice as fast as `Queue`. `offer` checks the bound before the put. If several processors
    call it at the same time, each of them may exceed the bound by one request.
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
