"""`RequestChannel`: the bounded queue of requests between processors and handlers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TypeAlias

from klamm.api.context import RequestContext
from klamm.api.dispatch import RequestScheduler
from klamm.requests.pending import PendingRequest, RequestStage

log = logging.getLogger("klamm.network")

WakeUp: TypeAlias = Callable[[], None]


class RequestChannel:
    """The request queue of a server, shared by its listeners. Any thread may call it.

    A processor never blocks on a full queue. It keeps the request, and is woken when a handler takes another request.
    """

    def __init__(self, scheduler: RequestScheduler) -> None:
        self._scheduler = scheduler
        self.lane = scheduler.lane
        self.lane_sizes = scheduler.lane_sizes
        self.handled = scheduler.handled
        self.resized = scheduler.resized
        self.take = scheduler.take
        self.wake_handler = scheduler.wake
        self.size = scheduler.size
        self._lock = Lock()
        # Protected by the lock.
        self._waiting: set[WakeUp] = set()
        self.full_count = 0

    def send_request(self, request: RequestContext, wake_up: WakeUp) -> bool:
        """Queue a request. Return False if the queue is full; the caller tries again when `wake_up` is called."""
        if self._scheduler.offer(request):
            return True
        with self._lock:
            self.full_count += 1
            self._waiting.add(wake_up)
        # Try again, because a handler may have emptied the queue before `wake_up` was registered. The registration
        # stays in any case, because other requests of the same processor may wait for that call.
        return self._scheduler.offer(request)

    def receive_request(self) -> RequestContext | None:
        """Return the next request for a handler, or None if the handler must check whether to stop."""
        request = self.take()
        if self._waiting:
            with self._lock:
                waiting, self._waiting = self._waiting, set()
            for wake_up in waiting:
                wake_up()
        return request


class WaitingRequests:
    """The requests of one processor for which the queue had no room.

    They are kept by lane (`RequestScheduler.lane`), so that no request waits for a request of another lane. The
    processor's thread calls all methods except `room_made`, which handlers call. `give_up` ends a request for which the
    scheduler has raised.
    """

    def __init__(
        self, channel: RequestChannel, wake_up: WakeUp, give_up: Callable[[PendingRequest, str], None]
    ) -> None:
        self._channel = channel
        self._wake_up = wake_up
        self._give_up = give_up
        self._lanes: dict[Hashable, deque[PendingRequest]] = {}
        self.has_room = False

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __len__(self) -> int:
        # A copy, because other threads call this for metrics.
        return sum(map(len, list(self._lanes.values())))

    def room_made(self) -> None:
        """Note that a handler has taken a request, so that `retry` may succeed now. Any thread may call this."""
        # Set before the wake-up, because a processor checks it before it sleeps.
        self.has_room = True
        self._wake_up()

    def send(self, request: PendingRequest) -> None:
        """Queue a request, or keep it until `retry`."""
        if self._lanes:
            waiting = self._lanes.get(self._channel.lane(request.context))
            if waiting is not None:
                waiting.append(request)
                return
        if not self._channel.send_request(request.context, self.room_made):
            self._lanes[self._channel.lane(request.context)] = deque((request,))

    def retry(self) -> None:
        """Queue as many requests as there is room for, one request of each lane at a time.

        If the scheduler raises for a request, its connection is closed, and the requests after it are tried.
        """
        self.has_room = False
        refused: set[Hashable] = set()
        while len(refused) < len(self._lanes):
            for lane in [lane for lane in self._lanes if lane not in refused]:
                waiting = self._lanes[lane]
                while waiting and waiting[0].stage is RequestStage.CANCELLED:
                    waiting.popleft()
                if waiting and not self._sent_or_given_up(waiting[0]):
                    refused.add(lane)
                    continue
                # A lane that got a place becomes the last in the order, so that the next place goes to another lane.
                del self._lanes[lane]
                if waiting:
                    waiting.popleft()
                if waiting:
                    self._lanes[lane] = waiting

    def _sent_or_given_up(self, request: PendingRequest) -> bool:
        try:
            return self._channel.send_request(request.context, self.room_made)
        except Exception as error:
            log.exception("listener=%s: the request scheduler failed", request.context.listener.name)
            self._give_up(request, f"the request scheduler failed: {error!r}")
            return True
