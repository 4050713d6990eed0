"""The request scheduler `fair`: takes turns between clients, by the cost of their requests.

`LaneScheduler` calls the methods with an underscore under its lock, on processor and handler threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm import RequestContext, setting
from klamm.shared import source_of
from klamm_dispatch.lanes import Lane, LaneScheduler

_MAX_CLIENTS: Final = 10_000
_SMOOTHING: Final = 0.25

_KEYS: Final[dict[str, Callable[[RequestContext], str]]] = {
    "user": lambda request: str(request.principal),
    "client_id": lambda request: request.client_id or "",
    "user_and_client_id": lambda request: f"{request.principal}/{request.client_id or ''}",
    "address": lambda request: source_of(request.client_address.host),
    "connection": lambda request: request.connection.connection_id,
}
_QUANTUM: Final = {"handler_time": 1e6, "bytes": 65536.0}


def _check_weights(weights: dict[str, float]) -> str | None:
    wrong = sorted(name for name, weight in weights.items() if not 0 < weight < math.inf)
    return f"weights must be above 0: {', '.join(wrong)}" if wrong else None


@dataclass(frozen=True, slots=True)
class FairSettings:
    """The table `[server.fair]`."""

    by: str = setting("user_and_client_id", doc="Identity of a client.", choices=tuple(_KEYS))
    cost: str = setting(
        "handler_time",
        doc="The cost of a request: the time that its handler takes, or its size.",
        choices=tuple(_QUANTUM),
    )
    weights: dict[str, float] = setting(
        {},
        doc='Weights of clients, by the value of `by`, e.g. "User:etl"; the default is 1.',
        check=_check_weights,
    )
    client_max_queued: float = setting(
        0.5, doc="The part of queued.max.requests that one client may fill.", minimum=0.0, maximum=1.0
    )
    spare_handlers: int = setting(
        1, doc="Number of handlers that a single client cannot occupy, unless there is only one handler.", minimum=0
    )


class Fair(LaneScheduler):
    """The scheduler `fair`: deficit round robin (Shreedhar and Varghese) over clients, which have one lane each.

    Each turn gives a client a credit of one quantum times its weight, and serves the client while it has credit. When a
    request starts, its client pays the average cost of its requests. When the request ends, the client pays the
    difference to the real cost. A client without requests does not save credit, but its debt stays until no client
    waits.
    """

    settings: FairSettings

    def __init__(self, settings: FairSettings, capacity: int) -> None:
        super().__init__(settings, capacity)
        self._key = _KEYS[settings.by]
        self._by_bytes = settings.cost == "bytes"
        self._quantum = _QUANTUM[settings.cost]
        self._client_capacity = max(1, int(capacity * settings.client_max_queued))
        self._lanes: dict[str, Lane] = {}
        self._round: deque[Lane] = deque()

    def lane(self, request: RequestContext) -> Hashable:
        return self._key(request)

    def _lane_of(self, request: RequestContext) -> Lane:
        key = self._key(request)
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= _MAX_CLIENTS:
                self._forget_oldest_idle()
            lane = self._lanes[key] = Lane(key, self._client_capacity, self.settings.weights.get(key, 1.0))
        return lane

    def _forget_oldest_idle(self) -> None:
        for key, lane in self._lanes.items():
            if not lane.waiting and not lane.running:
                del self._lanes[key]
                return

    def _queued(self, lane: Lane) -> None:
        if len(lane.waiting) == 1:
            self._round.append(lane)

    def _next_lane(self) -> Lane | None:
        limit = self._handlers_less(self.settings.spare_handlers)
        for lane in self._round:
            if lane.credit > 0 and lane.running < limit:
                return lane
        may_run = [lane for lane in self._round if lane.running < limit]
        if not may_run:
            return None
        # No client has credit: give at once the number of turns that the first client needs to get some.
        rounds = min(math.floor(-lane.credit / (self._quantum * lane.weight)) + 1 for lane in may_run)
        for lane in may_run:
            lane.credit += rounds * self._quantum * lane.weight
        return next(lane for lane in may_run if lane.credit > 0)

    def _started(self, lane: Lane, request: RequestContext) -> None:
        lane.credit -= request.size_bytes if self._by_bytes else lane.estimate
        if not lane.waiting:
            self._round.remove(lane)
            lane.credit = min(0.0, lane.credit)
        elif lane.credit <= 0:
            self._round.remove(lane)
            self._round.append(lane)

    def _finished(self, lane: Lane, request: RequestContext, busy_ns: int) -> None:
        if not self._by_bytes:
            lane.credit += lane.estimate - busy_ns
            lane.estimate += _SMOOTHING * (busy_ns - lane.estimate)
        if not self._round and not self._running:
            self._lanes.clear()

    def lane_sizes(self) -> Mapping[str, int]:
        with self._lock:
            return {lane.name: len(lane.waiting) for lane in self._round}
