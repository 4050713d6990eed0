"""`LaneScheduler`, the base class of `priority` and `fair`: lanes, their bounds, and reserved handlers.

Processor threads call `offer`, request handlers call `take` and `handled`.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from queue import SimpleQueue
from typing import Any

from klamm import RequestContext
from klamm.dispatch import RequestScheduler


class Lane:
    """A queue of requests. `running` is the number of the lane's requests that handlers are executing."""

    __slots__ = ("capacity", "credit", "estimate", "name", "running", "waiting", "weight")

    def __init__(self, name: str, capacity: int, weight: float = 1.0) -> None:
        self.name = name
        self.capacity = capacity
        self.weight = weight
        self.waiting: deque[RequestContext] = deque()
        self.running = 0
        self.credit = 0.0
        self.estimate = 0.0


class LaneScheduler(RequestScheduler):
    """A bounded queue that consists of lanes. A subclass chooses the next lane in `_next_lane`, under the lock.

    Handlers wait on a `SimpleQueue`, which is faster than a condition and has a token for each queued request. If a
    handler has a token but no lane may run, because reserved handlers must stay free, it sets the token aside until a
    request is finished.
    """

    def __init__(self, settings: Any, capacity: int) -> None:
        super().__init__(settings, capacity)
        # Protects the lanes and their counts.
        self._lock = threading.Lock()
        self._tokens: SimpleQueue[bool | None] = SimpleQueue()
        self._set_aside = 0
        self._size = 0
        self._handlers = 0
        self._running: dict[RequestContext, Lane] = {}

    @abstractmethod
    def _lane_of(self, request: RequestContext) -> Lane:
        """Return the lane of a request. The first request creates it."""

    @abstractmethod
    def _next_lane(self) -> Lane | None:
        """Return the next request's lane, or None if no lane with requests may run now. The caller holds the lock."""

    def _queued(self, lane: Lane) -> None:
        """Called when a request was appended to the lane. Does nothing here. The caller holds the lock."""

    def _started(self, lane: Lane, request: RequestContext) -> None:
        """Called when a handler has taken the lane's first request. Does nothing here. The caller holds the lock."""

    def _finished(self, lane: Lane, request: RequestContext, busy_ns: int) -> None:
        """Called when a handler has finished the request. Does nothing here. The caller holds the lock."""

    def offer(self, request: RequestContext) -> bool:
        with self._lock:
            lane = self._lane_of(request)
            if self._size >= self.capacity or len(lane.waiting) >= lane.capacity:
                return False
            self._size += 1
            lane.waiting.append(request)
            self._queued(lane)
        self._tokens.put(True)
        return True

    def take(self) -> RequestContext | None:
        while self._tokens.get() is not None:
            with self._lock:
                lane = self._next_lane()
                if lane is None:
                    self._set_aside += 1
                    continue
                request = lane.waiting.popleft()
                self._size -= 1
                lane.running += 1
                self._running[request] = lane
                self._started(lane, request)
                return request
        return None

    def handled(self, request: RequestContext, busy_ns: int) -> None:
        with self._lock:
            lane = self._running.pop(request)
            lane.running -= 1
            self._finished(lane, request, busy_ns)
            again = self._set_aside > 0
            self._set_aside -= again
        if again:
            self._tokens.put(True)

    def resized(self, handlers: int) -> None:
        with self._lock:
            self._handlers = handlers
            again, self._set_aside = self._set_aside, 0
        for _ in range(again):
            self._tokens.put(True)

    def wake(self) -> None:
        self._tokens.put(None)

    def size(self) -> int:
        return self._size

    def _handlers_less(self, reserved: int) -> int:
        """Return the number of handlers without the reserved ones, at least one.

        Until the number of handlers is known, it is unlimited.
        """
        return max(1, self._handlers - reserved) if self._handlers else 1 << 31
